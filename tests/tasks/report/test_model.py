"""What a report says, from rows with made-up numbers: cautions at their thresholds, facts, tables, the command of each trial."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.results import TrialRow
from tasks.report.model import other_share, reproduce
from tests.tasks.cell_support import column, repeats, report_of, row, settings, workers

LATE = "settled only inside the measured window"


def cautions(*rows: TrialRow, **more: Any) -> list[str]:
    return list(report_of(list(rows), **more).cautions)


# --- cautions


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


# --- the head of the report


def test_title_facts_and_watermark() -> None:
    rows = [row(workers(0)), row(workers(1), outcome=None, value=None)]
    plan = {
        "profile": "smoke",
        "created_at": 1_767_225_600.0,
        "git": {"commit": "0123456789abcdef", "dirty": True},
        "command": "sweep run x",
    }
    report = report_of(rows, **plan)
    assert (report.title, report.description, report.sweep_id, report.watermark) == ("made_up · smoke", "Made-up numbers.", "made-up", None)
    assert report.facts == [
        ("Sweep", "made-up"),
        ("Planned", "2026-01-01 00:00 UTC"),
        ("Trials", "1 of 2 ended"),
        ("Commit", "0123456789ab with uncommitted changes"),
        ("Command", "sweep run x"),
    ]
    bare = report_of(rows[:1], git={"commit": "0123456789abcdef", "dirty": False}, command="")
    assert bare.title == "made_up · smoke"
    assert bare.facts[2:] == [("Trials", "1, all ended"), ("Commit", "0123456789ab")]
    assert [name for name, _ in report_of(rows[:1], command="").facts] == ["Sweep", "Planned", "Trials"]
    assert ("Trials", "2 of 3 ended") in report_of([*rows, row(workers(2), None, outcome=Outcome.CRASHED)]).facts
    assert report_of([row(workers(0), emulated=True)], emulated=True).watermark == "emulated: not a measurement"


def test_why_there_is_no_winner() -> None:
    failed, waiting, fake = row(workers(0), None, outcome=Outcome.HANG), row(workers(1), None, outcome=None), row(workers(2), emulated=True)
    assert report_of([]).nothing == "The sweep has no trials."
    assert report_of([row(workers(0))], emulated=True).nothing == "No trial of this sweep is emulated."
    assert report_of([replace(fake, summary={})], emulated=True).nothing == "No emulated trial has ended ok."
    assert report_of([fake]).nothing == "Every trial is emulated: nothing here is a measurement, so nothing is compared."
    assert report_of([waiting]).nothing == "No trial has ended yet."
    assert report_of([waiting, failed]).nothing == "No cell has a result that can be claimed."
    done = report_of([row(workers(0)), failed])
    assert done.nothing == "" and done.winner is not None and done.winners == []


def test_several_kinds_of_work_have_a_winner_each() -> None:
    report = report_of([*repeats(workers(0, model="a"), 100.0), *repeats(workers(0, model="b"), 10.0)])
    assert report.winner is None and len(report.winners) == 2
    assert report.nothing == "Cells that do not do the same work are not compared with each other."


def test_cells_stand_in_the_tables_order() -> None:
    rows = [row(workers(count, pool)) for pool, count in (("b", 1), ("a", 2), ("b", 0), ("a", 0))]
    assert [cell.name for cell in report_of(rows).cells] == ["b · MP-0", "b · MP-1", "a · MP-0", "a · MP-2"]


# --- tables


def test_where_a_steps_time_goes() -> None:
    shares = {"data_wait_share": 0.1, "h2d_share": 0.05, "forward_backward_share": 0.6, "optimizer_share": 0.2}
    rest: dict[str, Any] = {
        "step_time_median_s": 0.01,
        "step_time_p90_s": 0.02,
        "peak_memory_bytes": 3 * 2**30,
        "tflops_per_device": 123.46,
        "mfu": 0.4,
        "energy_j_per_sample": 1.234,
        "mean_power_w": 321.0,
        "time_to_first_step_s": 2.5,
        "compile_seconds": 30.0,
        "epoch_time_s": 5400.0,
    }
    rows = [
        row(workers(0), repeat=1, summary={**shares, **rest, "alloc_retries": 3}),
        row(workers(0), repeat=2, summary={**shares, **rest, "alloc_retries": 4, "data_wait_share": 0.12, "step_time_median_s": 0.03}),
        row(workers(1), summary={**shares, "h2d_share": None, "alloc_retries": 3}),
        row(workers(2), None, outcome=Outcome.CRASHED, summary=shares),
    ]
    table = report_of(rows).decomposition
    assert table.numeric and column(table, "cell") == ["cpu · MP-0", "cpu · MP-1"]
    assert dict(zip(table.header, table.rows[0], strict=True)) == {
        "cell": "cpu · MP-0",
        "step, median": "20.0 ms",
        "step, p90": "20.0 ms",
        "data wait": "11.0 %",
        "copy to device": "5.0 %",
        "forward + backward": "60.0 %",
        "optimiser": "20.0 %",
        "other": "4.0 %",
        "peak memory": "3.00 GiB",
        "alloc. retries": "3.50",
        "TFLOP/s / device": "123.5",
        "MFU": "40.0 %",
        "J / sample": "1.23",
        "power": "321 W",
        "first step": "2.50 s",
        "compile": "30.0 s",
        "epoch": "1.50 h",
    }
    second = dict(zip(table.header, table.rows[1], strict=True))
    assert (second["copy to device"], second["other"], second["alloc. retries"], second["power"]) == ("–", "–", "3", "–")
    assert "latency, p50" not in table.header, "a column of dashes is left out"
    latencies = report_of([row(workers(0), summary={"latency_p50_s": 0.01, "latency_p99_s": 0.02})]).decomposition
    assert latencies.header == ["cell", "latency, p50", "latency, p99"]


def test_the_part_that_no_timer_saw() -> None:
    assert other_share([0.5, 0.25]) == pytest.approx(0.25)
    assert other_share([0.7, 0.4]) == 0.0, "timers may overlap"
    assert other_share([0.5, None]) is None


def test_evaluations_before_and_after() -> None:
    rows = [
        row(workers(0), repeat=1, summary={"eval_loss_before": 5.0, "eval_loss_after": 2.0, "eval_recall_at_1_after": 0.25}),
        row(workers(0), repeat=2, summary={"eval_loss_before": 7.0, "eval_loss_after": 3.0, "eval_recall_at_1_after": None}),
        row(workers(1), summary={"eval_odd_before": None}),
        row(workers(2), None, outcome=Outcome.CRASHED, summary={"eval_loss_before": 9.0}),
    ]
    table = report_of(rows).evaluation
    assert table.header == ["cell", "loss, before", "loss, after", "recall at 1, after"]
    assert table.rows == [["cpu · MP-0", "6.00", "2.50", "0.250"], ["cpu · MP-1", "–", "–", "–"]]
    assert report_of(rows[2:3]).evaluation.rows == []


def test_trials_that_are_not_ok_and_confounders() -> None:
    rows = [
        row(workers(0), environment={"torch": "1"}),
        row(workers(1), environment={"torch": "2"}),
        row(workers(2), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB", parameters={"seed": 1}),  # ended without a rate to compare
        row(workers(3), None, outcome=None),
        row(workers(4), None, outcome=Outcome.CRASHED),
    ]
    report = report_of(rows)
    assert report.outcomes.rows == [
        ["cpu · MP-2 · #1", "does not fit", "80 GiB"],
        ["cpu · MP-3 · #1", "to do", "has not run"],
        ["cpu · MP-4 · #1", "crashed", "no reason given"],
    ]
    assert report.confounders.rows == [["torch", "1", "cpu · MP-0"], ["torch", "2", "cpu · MP-1"]]


def test_confounders_name_their_cells_in_as_few_words_as_can_be() -> None:
    def who(versions: dict[tuple[str, int], str]) -> dict[str, str]:
        rows = [row(workers(count, pool), environment={"torch": version}) for (pool, count), version in versions.items()]
        return {value: cells for _, value, cells in report_of(rows).confounders.rows}

    assert who({("a", 0): "1", ("a", 1): "1", ("b", 0): "2", ("b", 1): "2"}) == {"1": "all cells of pool a", "2": "all cells of pool b"}
    assert who({("a", 0): "1", ("b", 0): "2"}) == {"1": "a · MP-0", "2": "b · MP-0"}, "a single cell by its own name"
    five = {("a", count): "1" for count in range(5)}
    assert who({**five, ("a", 9): "2"}) == {"1": "the other 5 cells", "2": "a · MP-9"}
    four = {("a", count): "1" for count in range(4)}
    assert who({**four, ("a", 9): "2"})["1"] == "a · MP-0, a · MP-1, a · MP-2 and a · MP-3"
    ten = {("a", count): str(count // 5) for count in range(10)}
    assert who(ten)["0"].startswith("a · MP-0, a · MP-1,"), "neither half is the other"
    mixed = [row(workers(0), repeat=place, environment={"torch": str(place)}) for place in (1, 2)]
    assert [line[2] for line in report_of(mixed).confounders.rows] == ["every cell, in some of its repeats"] * 2


def test_the_environment_that_all_share() -> None:
    facts = {"torch": "2.13", "driver": None, "flags": {"a": 1}, "tf32": True, "list": [1]}
    rows = [row(workers(0), environment={**facts, "host": "a"}), row(workers(1), environment={**facts, "host": "b"}), row(workers(2), None)]
    assert report_of(rows).environment == [("torch", "2.13"), ("driver", "unknown"), ("tf32", "true")]


def test_notes_are_said_once_with_who_said_them() -> None:
    def noted(said: dict[int, list[str]], ended: int) -> list[str]:
        rows = [row(workers(count), notes=said.get(count, [])) for count in range(ended)]
        return list(report_of([*rows, row(workers(99), None, outcome=None)]).notes)

    assert noted({0: ["a", "a", "b"], 1: ["b"]}, 3) == ["cpu · MP-0 · #1: a", "cpu · MP-0 · #1 and cpu · MP-1 · #1: b"]
    assert noted({count: ["all"] for count in range(3)}, 3) == ["Every trial: all"]
    four = {count: ["four"] for count in range(4)}
    assert noted(four, 6) == ["cpu · MP-0 · #1, cpu · MP-1 · #1, cpu · MP-2 · #1 and cpu · MP-3 · #1: four"]
    assert noted({**four, 4: ["four"]}, 6) == ["5 trials: four"]


def test_what_named_settings_stand_for() -> None:
    suite = settings(columns="rung", baseline={"rung": "a"}, conditions=[{"when": {"rung": "b"}, "set": {"compile": "layer"}}])
    rows = [row({"pool": "cpu", "rung": rung}, parameters={"compile": chosen}) for rung, chosen in (("a", "none"), ("b", "layer"))]
    table = report_of(rows, suite).settings
    assert (table.header, table.rows) == (["rung", "sets"], [["a", "compile none"], ["b", "compile layer"]])


# --- one line for each trial


def test_a_trials_line() -> None:
    rows = [
        row(workers(0), summary={"first_loss": 5.25, "final_loss": 2.5}),
        row(workers(1), summary={"first_loss": 5.25, "final_loss": None}),
        row(workers(2), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB"),
        row(workers(3), emulated=True),
    ]
    links = {rows[0].trial.key: "https://host/run", rows[1].trial.key: "javascript:x", rows[2].trial.key: "http://host/run"}
    lines = report_of(rows, mlflow_links=links).trials
    assert [(line.name, line.outcome, line.reason, line.value, line.loss, line.link, line.emulated) for line in lines] == [
        ("cpu · MP-0 · #1", "ok", "", "100.0 samples/s", "5.250 → 2.500", "https://host/run", False),
        ("cpu · MP-1 · #1", "ok", "", "100.0 samples/s", "–", None, False),
        ("cpu · MP-2 · #1", "does not fit", "80 GiB", "–", "–", "http://host/run", False),
        ("cpu · MP-3 · #1", "ok", "", "–", "–", None, True),
    ]
    assert lines[0].command == "sweep run made_up --only pool=cpu --only dataloader_workers=0"
    [shown] = report_of(rows, emulated=True).trials
    assert (shown.name, shown.value) == ("cpu · MP-3 · #1", "100.0 samples/s")


def test_the_command_of_one_cell_replaces_what_was_selected() -> None:
    trial = row({"pool": "a b", "clip": None, "fused": True, "rate": 0.5}).trial
    only = "--only 'pool=a b' --only clip=null --only fused=true --only rate=0.5"
    command = "sweep run s --only pool=x --only=clip=1 --profile full --repeats 3"
    assert reproduce(trial, command) == f"sweep run s --profile full --repeats 3 {only}"
    assert reproduce(trial, "sweep night n --only pool=x") == "sweep night n --only pool=x"
    assert reproduce(trial, "sweep run 'broken") == "sweep run 'broken"
