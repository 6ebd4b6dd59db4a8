"""Cautions of a report, from rows with made-up numbers: each at its threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.results import TrialRow
from tests.tasks.cell_support import repeats, report_of, row, settings, workers


def cautions(*rows: TrialRow, **more: Any) -> list[str]:
    """Without that of an unknown spread: tests/tasks/report/test_spread_caution.py."""
    return [line for line in report_of(list(rows), **more).cautions if not line.startswith("The spread between trials")]


def test_nothing_to_caution_against() -> None:
    assert cautions(*repeats(workers(0), 100.0), *repeats(workers(1), 100.0)) == []
    assert cautions(row(workers(0), None, outcome=Outcome.CRASHED)) == []


def test_single_runs_are_cautioned_against_until_one_cell_has_two() -> None:
    once = "Each cell ran once: the intervals hold what varies between steps, not between trials; --repeats 3 measures that too."
    single = [row(workers(0)), row(workers(1))]
    assert cautions(*single) == [once]
    failed = row(workers(1), None, repeat=2, outcome=Outcome.CRASHED)
    assert cautions(*single, failed) == [once], "a repeat that failed measured nothing"
    assert cautions(*single, row(workers(1), repeat=2)) == []


def test_cells_with_a_repeat_that_never_settled_are_named() -> None:
    rows = [*repeats(workers(0), 100.0), *repeats(workers(1), 100.0), *repeats(workers(2), 100.0)]
    assert "Step times" not in str(cautions(*rows))
    rows[3], rows[8] = (replace(one, summary={**one.summary, "settled": False}) for one in (rows[3], rows[8]))
    assert cautions(*rows) == ["Step times never settled in 2 cells: cpu · MP-1; cpu · MP-2."]
    assert cautions(*rows[:6]) == ["Step times never settled in 1 cell: cpu · MP-1."]


@pytest.mark.parametrize(("settled_at", "late"), [(None, False), (5, False), (6, False), (7, True)])
def test_settling_inside_the_window_begins_a_step_after_its_first(settled_at: int | None, late: bool) -> None:
    """5 steps of warm-up: the window's first step is 6."""
    summary = {"settled_at_step": settled_at}
    rows = [
        row(workers(0), repeat=place, losses=[1.0] * 9, parameters={"warmup_steps": 5}, summary=summary if place == 2 else {})
        for place in (1, 2)
    ]
    expected = ["Step times settled only inside the measured window in cpu · MP-0 · #2: a longer warm-up would cut that off."]
    assert cautions(*rows) == (expected if late else [])


def test_settling_is_not_judged_where_the_steps_are_gone() -> None:
    rows = [row(workers(0), repeat=place, parameters={"warmup_steps": 5}, summary={"settled_at_step": 50}) for place in (1, 2)]
    assert cautions(*rows) == []


def test_what_left_its_band_is_said_by_cell_and_what_was_not_gated_by_reason() -> None:
    def pair(axes: dict[str, Any], loss: float, **more: Any) -> list[TrialRow]:
        return [row(axes, repeat=place, losses=[loss] * 50, **more) for place in (1, 2)]

    rows = [
        *pair(workers(0, precision="fp32"), 2.0),
        *pair(workers(0, precision="bf16"), 2.1),
        *pair(workers(1, precision="bf16"), 2.0),
        *pair(workers(0, precision="bf16", seed=1), 2.0),
        *pair(workers(1, precision="bf16", seed=1), 2.0),
    ]
    left = "the loss left the band of fp32 at step 1 (by 10.0 times its half-width): no speed-up is claimed"
    missing = "no fp32 reference: the nearest fp32 cell has another seed: the loss was not gated"
    assert cautions(*rows, suite=settings(rows=("precision", "seed"))) == [
        f"cpu · MP-0 · bf16: {left}.",
        f"Loss parity could not be checked for 2 cells: {missing}.",
    ]


def test_a_fallen_media_pipe_and_a_workloads_own_caveat_are_said() -> None:
    rows = [
        row(workers(0), repeat=1, environment={"media_pipe": "fallback: no files"}, workload="flava"),
        row(workers(0), repeat=2, environment={"media_pipe": "in use"}, workload="flava"),
        row(workers(1), repeat=1, workload="long gone"),
    ]
    pipe, caveat = cautions(*rows)
    assert pipe == "The media pipe could not be used, and the DataLoader decoded the images, in cpu · MP-0 · #1."
    from experiments.workloads.flava import CAVEAT

    assert caveat == CAVEAT


def test_emulated_trials_are_counted() -> None:
    rows = [*repeats(workers(1), 100.0, emulated=True), *repeats(workers(0), 100.0)]
    text = "3 trials ran on an emulated device, which measures nothing: "
    assert cautions(*rows) == [text + "left out; `sweep report --emulated` shows them by themselves."]
    assert cautions(*rows, emulated=True) == [text + "shown here alone, because it was asked for."]
