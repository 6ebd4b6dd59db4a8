"""Cautions of a report, from rows with made-up numbers: each at its threshold."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.judge_cells import OF_MANY, SPREADS_DIFFER
from tasks.analysis.trial_row import TrialRow
from tasks.report.cautions import caution_groups
from tests.tasks.cell_support import made, repeats, report_of, row, settings, workers

UNSAMPLED = "The state of the devices was not recorded."


def cautions(*rows: TrialRow, **more: Any) -> list[str]:
    """Without that of an unknown spread (tests/tasks/report/test_spread_caution.py), and of devices that nothing was sampled of."""
    unknown = ("A cell that ran once on", UNSAMPLED)
    report = report_of(list(rows), **more)
    assert not [line for group in report.caution_groups for line in group.lines if line.startswith(group.title)], "pages have both"
    return [line for line in report.cautions if not line.startswith(unknown)]


def of_cells(*arguments: Any, **more: Any) -> list[str]:
    """The cautions of cells, without the latter."""
    groups = caution_groups(*arguments, **more)
    assert all(group.lines for group in groups)
    assert not [line for group in groups for line in group.lines if line.startswith(group.title)], "pages have both, one after the other"
    return [line for group in groups for line in group.lines if line != UNSAMPLED]


def test_nothing_to_caution_against() -> None:
    assert cautions(*repeats(workers(0), 100.0), *repeats(workers(1), 100.0)) == []
    assert cautions(row(workers(0), None, outcome=Outcome.CRASHED)) == []


def test_what_was_planned_and_is_not_there_is_named() -> None:
    first, second = repeats(workers(0), 100.0), repeats(workers(1), 100.0)
    cut = [row(workers(1), repeat=4).trial, *(row(workers(count)).trial for count in (2, 4))]
    assert cautions(*first, *second, cut=cut) == ["2 cells not measured: MP-2 and MP-4.", "Fewer trials than planned: MP-1."]


FP32 = {"precision": "fp32"}  # its own reference, so nothing is to prove
KNOWN = Spread(0.01, 20)  # between trials
ONCE = "ran once: one trial does not show what varies between trials, so it gets no verdict; three repeats do."


def test_single_runs_are_cautioned_against_until_each_cell_has_two() -> None:
    single = [row(workers(0)), row(workers(1))]
    assert cautions(*single) == [f"Each cell {ONCE}"] and cautions(single[0]) == [f"The cell {ONCE}"]
    failed = row(workers(1), None, repeat=2, outcome=Outcome.CRASHED)
    one = ONCE.replace("ran once", "has one trial that counts")
    assert cautions(*single, failed) == [f"Each cell {one}"], "a repeat that failed measured nothing"
    assert cautions(*single, row(workers(1), repeat=2)) == [f"1 cell of 2 (MP-0) {ONCE}"]
    assert cautions(*single, row(workers(1), repeat=2), row(workers(0), repeat=2)) == []


def test_two_trials_whose_spreads_differ_are_said() -> None:
    cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 103.0)])
    cells[1].verdict, cells[1].why_undecided = Verdict.UNDECIDED, SPREADS_DIFFER
    why = "compared over two trials, whose spreads differ; a third round would tell."
    assert of_cells([], cells, emulated=False) == [f"Undecided against the baseline in 1 cell (MP-1): {why}"]


def test_what_only_many_comparisons_leave_undecided_is_said() -> None:
    cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 103.0), *repeats(workers(2), 100.0)])
    cells[1].verdict, cells[1].why_undecided = Verdict.UNDECIDED, OF_MANY
    assert of_cells([], cells, emulated=False) == [
        "Undecided against the baseline in 1 cell (MP-1): alone it would be decided; among 2 comparisons, whose false discovery rate "
        "is controlled, it is not."
    ]


def test_trials_that_never_settled_are_counted_and_named() -> None:
    rows = [*repeats(workers(0), 100.0), *repeats(workers(1), 100.0), *repeats(workers(2), 100.0)]
    assert "Step times" not in str(cautions(*rows))
    rows[3], rows[8] = (replace(one, summary={**one.summary, "settled": False}) for one in (rows[3], rows[8]))
    assert cautions(*rows) == ["Step times never settled in 2 of 9 trials (MP-1 · #1 and MP-2 · #3)."]
    assert cautions(*rows[:6]) == ["Step times never settled in 1 of 6 trials (MP-1 · #1)."]


def test_trials_of_too_few_steps_are_not_called_unsettled() -> None:
    rows = repeats(workers(0), 100.0)
    rows[0] = replace(rows[0], summary={**rows[0].summary, "settled": None, "measured_steps": 6})
    assert cautions(*rows) == ["Too few steps to tell whether step times settled in 1 of 3 trials (6 steps: cpu · MP-0 · #1)."]
    rows[1] = replace(rows[1], summary={**rows[1].summary, "settled": None, "measured_steps": 3})
    rows[2] = replace(rows[2], summary={**rows[2].summary, "settled": False, "measured_steps": 8})
    assert cautions(*rows) == [
        "Step times never settled in 1 of 3 trials (cpu · MP-0 · #3).",
        "Too few steps to tell whether step times settled in 2 of 3 trials (3 to 6 steps: cpu · MP-0 · #1 and cpu · MP-0 · #2).",
    ]


def test_the_only_trial_of_a_cell_may_be_too_short_to_tell() -> None:
    short = {"measured_steps": 39, "throughput_low": None, "throughput_high": None}
    follow = {"measured_steps": 100, "effective_steps": 7.5, "throughput_low": None, "throughput_high": None}
    rows = [row(workers(0), summary=short), row(workers(1), summary={**short, "throughput_low": 99.0}), row(workers(2), summary=follow)]

    def said(*of: TrialRow, known: Spread | None = KNOWN, suite: Any = None) -> list[str]:
        cells = made(of, suite)
        for cell in cells:
            cell.known = known
        return [line for line in of_cells([], cells, emulated=False) if "too short" in line]

    assert said(*rows) == [
        "The window was too short to tell how sure the rate is, in MP-0 and MP-2: fewer than 40 steps, or steps that follow "
        "each other too closely (effective_steps). The interval is what past sweeps say alone; --set measure_s=30 makes the window longer."
    ]
    assert said(*rows, known=None) == [], "no interval, however long the window"
    assert said(*(row(workers(0), repeat=place, summary=follow) for place in (1, 2))) == [], "repeats give an interval of their own"
    median = row(workers(0), 0.1, metric="step_time_median_s", summary={**short, "throughput": 80.0})
    assert said(median, suite=settings(metric="step_time_median_s")) == [], "steps give no interval of a median in any case"


@pytest.mark.parametrize(
    ("drift", "said"),
    [
        (0.06, ["Step times rose by 6.0 % over the window in cpu · MP-0 · #2."]),
        (-0.06, ["Step times fell by 6.0 % over the window in cpu · MP-0 · #2."]),
        (0.019, []),
        (None, []),
    ],
)
def test_a_drift_is_named_with_its_trial(drift: float | None, said: list[str]) -> None:
    unsettled = {"settled": False, "drift": drift}
    rows = [row(workers(0), repeat=place, summary=unsettled if place == 2 else {"drift": 0.06}) for place in (1, 2)]
    assert [line for line in cautions(*rows) if "over the window" in line] == said


@pytest.mark.parametrize(("settled_at", "late"), [(None, False), (5, False), (6, False), (7, True)])
def test_settling_inside_the_window_begins_a_step_after_its_first(settled_at: int | None, late: bool) -> None:
    """A window whose first step is 6."""
    summary = {"settled_at_step": settled_at, "first_measured_step": 6}
    hint = "a longer warm-up would cut that off, such as `--set warmup_s=2`"
    rows = [row(workers(0), repeat=place, losses=[1.0] * 9, summary=summary if place == 2 else {}) for place in (1, 2)]
    expected = ["Step times settled only inside the measured window in cpu · MP-0 · #2: " + hint + "."]
    assert cautions(*rows) == (expected if late else [])


def test_a_warm_up_of_seconds_that_was_too_short_is_to_be_twice_as_long() -> None:
    summary = {"settled_at_step": 7, "first_measured_step": 6}
    timed = [row(workers(0), repeat=place, losses=[1.0] * 9, summary=summary, parameters={"warmup_s": 2.5}) for place in (1, 2)]
    [said] = cautions(*timed)
    assert said.endswith("a longer warm-up would cut that off, such as `--set warmup_s=5`.")


def test_settling_is_not_judged_where_the_steps_are_gone() -> None:
    rows = [row(workers(0), repeat=place, summary={"settled_at_step": 50, "first_measured_step": 6}) for place in (1, 2)]
    assert cautions(*rows) == []


def test_what_is_struck_is_said_by_cell_and_what_is_unproven_counted_by_reason() -> None:
    cells = made([one for count in range(4) for one in repeats(workers(count), 100.0)])
    states = (ParityStatus.PROVEN, ParityStatus.STRUCK, ParityStatus.UNPROVEN, ParityStatus.UNPROVEN)
    for cell, status in zip(cells, states, strict=True):
        cell.numerics = (("precision", str(cell.axes["dataloader_workers"])),)
        cell.parity, cell.parity_note = Parity(status), f"{status}: made up"
    assert of_cells([], cells, emulated=False) == [
        "MP-1: struck: made up.",
        "No speed-up of 2 cells is claimed, since their loss parity is unproven: made up.",
    ]
    cells[3].parity_note = "unproven: made up otherwise"
    assert of_cells([], cells[2:], emulated=False) == [
        "No speed-up of 2 cells is claimed, since their loss parity is unproven; the notes in the table say why."
    ]
    cells[3].parity_note = "unproven against bf16: made up"
    assert len(of_cells([], cells[2:], emulated=False)) == 2, "other references"
    assert of_cells([], cells[2:3], emulated=False) == ["No speed-up of 1 cell is claimed, since its loss parity is unproven: made up."]


def test_a_fallen_media_pipe_and_a_workloads_own_caveat_are_said() -> None:
    rows = [
        row(workers(0), repeat=1, parameters=FP32, environment={"media_pipe": "fallback: no files"}, workload="flava"),
        row(workers(0), repeat=2, parameters=FP32, environment={"media_pipe": "in use"}, workload="flava"),
        row(workers(1), repeat=1, parameters=FP32, workload="long gone"),
    ]
    once, pipe, caveat = cautions(*rows)
    assert once.startswith("1 cell of 2 (MP-1) ran once")
    assert pipe == "The media pipe could not be used, and the DataLoader decoded the images, in MP-0 · #1."
    from experiments.workloads.flava import CAVEAT

    assert caveat == CAVEAT


def test_emulated_trials_are_counted() -> None:
    rows = [*repeats(workers(1), 100.0, emulated=True, parameters=FP32), *repeats(workers(0), 100.0)]
    text = "3 trials ran on an emulated device, which measures nothing: "
    assert cautions(*rows) == [text + "left out; `sweep report --emulated` shows them by themselves."]
    assert cautions(*rows, emulated=True) == [text + "shown here alone, because it was asked for."]


def test_of_many_drifts_the_worst_is_named() -> None:
    rows = [
        row(workers(0), repeat=place, summary={"settled": False, "drift": drift})
        for place, drift in enumerate((0.03, -0.2, 0.1, 0.05, 0.01), 1)
    ]
    name = "cpu · MP-0 · #"
    assert [line for line in cautions(*rows[:4]) if "over the window" in line] == [
        f"Step times drifted over the window: they rose by 3.0 % in {name}1, fell by 20.0 % in {name}2, rose by 10.0 % in {name}3 "
        f"and rose by 5.0 % in {name}4."
    ]
    rows.append(row(workers(0), repeat=6, summary={"settled": False, "drift": 0.04}))
    assert [line for line in cautions(*rows) if "over the window" in line] == [
        "Step times drifted over the window in 5 trials; most in cpu · MP-0 · #2, where they fell by 20.0 %."
    ]


@pytest.mark.parametrize(
    ("parameters", "retries", "times", "other"),
    [
        (
            {},
            (32, 37.3),
            "32 to 37 times a trial in the window of MP-0 and MP-1",
            "With --set expandable_segments=true memory fragments less.",
        ),
        ({}, (0.9, 4), "4 times a trial in the window of MP-1", "With --set expandable_segments=true memory fragments less."),
        (
            {"devices": 2},
            (0, 8),
            "8 times a trial, on all its devices together, in the window of MP-1",
            "With --set expandable_segments=true memory fragments less.",
        ),
        (
            {"expandable_segments": True},
            (1, 0),
            "1 time a trial in the window of MP-0",
            "A smaller batch or checkpointing does without.",
        ),
    ],
)
def test_an_allocator_that_had_to_empty_its_cache_is_named(
    parameters: dict[str, Any], retries: tuple[float, float], times: str, other: str
) -> None:
    cells = made([*repeats(workers(0) | parameters, 100.0), *repeats(workers(1) | parameters, 100.0)])
    for cell, count in zip(cells, retries, strict=True):
        for one in cell.rows:
            one.summary["alloc_retries"] = count
    said = f"Memory was so short that torch's allocator emptied its cache {times}: the device waits for that. {other}"
    assert of_cells([], cells, emulated=False) == [said]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((0, None), []),
        ((1, None), ["1 step of the window of {0}"]),
        ((0, 3), ["3 steps of the window of {1}"]),
        ((1, 3), ["1 to 3 steps of the window of {0} and {1}"]),
    ],
)
def test_trials_in_whose_window_torch_compiled_are_named(steps: tuple[int | None, int | None], said: list[str]) -> None:
    cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 100.0)])
    for cell, count in zip(cells, steps, strict=True):
        cell.rows[0].summary.update(compiled_steps=count, left_out_steps=count)
    names = [cell.called(cell.rows[0]) for cell in cells]
    why = ", as it does for batches of another shape: no rate or time has these steps, and energy is not told."
    assert of_cells([], cells, emulated=False) == [f"torch compiled in {where.format(*names)}{why}" for where in said]
    for cell in cells:
        cell.rows[0].summary["left_out_steps"] = 0
    why = why.replace("no rate or time has these steps", "without them none would be left, so rates have that time")
    assert of_cells([], cells, emulated=False) == [f"torch compiled in {where.format(*names)}{why}" for where in said]


def test_an_allocator_that_never_had_to_is_not() -> None:
    cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 100.0)])
    for cell in cells:
        for one in cell.rows:
            one.summary["alloc_retries"] = 0
    assert of_cells([], cells, emulated=False) == []


def test_groups_come_in_their_order_with_what_the_report_knows_of_plan_code_and_crashes() -> None:
    rows = [*repeats(workers(0), 100.0), row(workers(1), 120.0), row(workers(2), None, problem="its journal is damaged")]
    rows += repeats(workers(4), 100.0, emulated=True)
    cells = made(rows)
    damaged = "left out of every figure, since files are damaged"
    groups = caution_groups(rows, cells, emulated=False, of_plan=["planned"], of_code=["code"], of_crashes=["again"])
    assert [(group.title, list(group.lines)) for group in groups if group.title not in ("Repeats and intervals", "Emulation")] == [
        ("Files", [f"1 trial of 8 {damaged} ({rows[4].trial.name}: its journal is damaged)."]),
        ("Plan", ["planned"]),
        ("Earlier attempts", ["again"]),
        ("Interference", [UNSAMPLED]),
        ("Code", ["code"]),
    ]
    assert [group.title for group in groups][4:] == ["Repeats and intervals", "Code", "Emulation"]


@pytest.mark.parametrize(("count", "end"), [(4, "4: x)."), (5, "4: x; ...).")])
def test_four_damaged_trials_are_named(count: int, end: str) -> None:
    rows = [row(workers(0), None, repeat=place, problem="x") for place in range(1, count + 1)]
    [line] = of_cells(rows, [], emulated=False)
    assert line.startswith(f"{count} trials of {count} left out") and line.replace("#", "").endswith(end)


def test_one_cell_of_which_one_trial_counts_has_it() -> None:
    rows = [*repeats(workers(0), 100.0), row(workers(1)), row(workers(1), None, repeat=2, outcome=Outcome.CRASHED)]
    assert cautions(*rows) == [f"1 cell of 2 (MP-1) {ONCE.replace('ran once', 'has one trial that counts')}"]


@pytest.mark.parametrize(
    ("axis", "second", "hint"),
    [
        (True, False, "A smaller batch or checkpointing does without."),
        (False, False, "With --set expandable_segments=true memory fragments less."),
        (False, True, "A smaller batch or checkpointing does without."),
    ],
)
def test_expandable_segments_are_recommended_where_not_all_have_tried_them(axis: bool, second: bool, hint: str) -> None:
    """Tried as an axis, though in no cell whose memory was short; or by all of these."""
    name = "expandable_segments"
    cells = made(
        [
            *repeats({**workers(0), **({name: False} if axis else {})}, 100.0, parameters={} if axis else {name: True}),
            *repeats({**workers(1), **({name: False} if axis else {})}, 100.0, parameters={} if axis else {name: second}),
        ]
    )
    for one in (one for cell in cells for one in cell.rows):
        one.summary["alloc_retries"] = 4
    [line] = of_cells([], cells, emulated=False)
    assert line.endswith(hint)


def test_one_emulated_trial_is_said() -> None:
    [line] = [line for line in cautions(row(workers(1), emulated=True), *repeats(workers(0), 100.0)) if "emulated" in line]
    assert line.startswith("1 trial ran on an emulated device")


def test_settling_says_nothing_of_a_metric_that_the_node_does_not_change() -> None:
    unsettled = {"settled": False, "drift": 0.5}
    for metric, said in (("throughput", True), ("final_loss", False)):
        rows = [row(workers(0), 2.0, metric=metric, repeat=place, summary=unsettled) for place in (1, 2, 3)]
        lines = of_cells([], made(rows, settings(metric=metric)), emulated=False)
        assert any(line.startswith("Step times never settled") for line in lines) is said


@pytest.mark.parametrize("known", [None, KNOWN])
def test_the_spread_of_emulated_trials_is_of_no_interest(known: Spread | None) -> None:
    cells = made([row(workers(0)), row(workers(1))])
    for cell in cells:
        cell.known = known
    lines = {emulated: of_cells([], cells, emulated=emulated) for emulated in (False, True)}
    assert [len([line for line in lines[emulated] if line.startswith("A cell that ran once on pool cpu")]) for emulated in lines] == [1, 0]


def test_rounds_that_act_on_cells_otherwise_are_said_once_a_pool() -> None:
    cells: list[Any] = made([*repeats(workers(0), 100.0), *repeats(workers(1), 100.0)])
    for cell in cells:
        cell.layout = SimpleNamespace(rounds_differ=True)
    [line] = of_cells([], cells, emulated=False)
    assert line.startswith("On pool cpu a test at 5 % finds that rounds acted on some cells otherwise than on others")
