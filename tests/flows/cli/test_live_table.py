"""The live table: what stands in it, and the lines that take its place where there is no terminal."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console

from experiments.trial import Outcome
from flows.cli.live_table import render, show
from flows.runtime.progress import SweepProgress
from tests.tasks.plan_support import make_trial


def text_of(progress: SweepProgress, height: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=200, height=height)
    console.print(render(progress, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_each_trial_has_a_row_and_the_last_line_counts_them() -> None:
    trials = [make_trial(number) for number in (1, 2, 3)]
    progress = SweepProgress(trials)
    progress.finish(trials[0], Outcome.OK, None)
    progress.start(trials[1])
    steps = [{"kind": "step", "step": 4, "loss": 0.51234, "measured": True, "samples": 10, "total_s": 2.0}]
    progress.observe(trials[1], 2, [{"kind": "environment", "emulated": True}, {"kind": "phase", "name": "training"}, *steps])
    progress.wait(trials[2], "pool in use")
    progress.set_pool_problem("p", "does not answer")
    progress.note = "publishing"
    heading, *rows, pool, footer = [re.split(r"  +", line) for line in text_of(progress)]
    assert heading == ["trial", "state", "step", "samples/s", "loss"]
    assert rows[0] == [trials[0].name, "ok"]
    assert rows[1] == [trials[1].name, "training (emulated) (attempt 2)", "4/7", "5.0", "0.5123"]
    assert rows[2] == [trials[2].name, "pool in use"]
    assert pool == ["pool p: does not answer"]
    assert footer[0].startswith("1 of 3 trials") and footer[0].endswith(". publishing")


def test_a_trial_that_is_to_last_some_seconds_counts_past_its_least_steps() -> None:
    trial = make_trial(1, parameters={"steps": 5, "warmup_steps": 2, "measure_s": 30.0})
    progress = SweepProgress([trial])
    progress.start(trial)
    step = {"kind": "step", "loss": 0.5, "measured": True, "samples": 10, "total_s": 2.0}
    for number, shown in ((4, "4/7+"), (12, "12/7+")):
        progress.observe(trial, 1, [{**step, "step": number}])
        assert shown in text_of(progress)[1]


def test_an_ended_trial_shows_its_results_rate_and_a_failed_one_none() -> None:
    trials = [make_trial(number) for number in (1, 2)]
    progress = SweepProgress(trials)
    step = {"kind": "step", "step": 4, "loss": 0.5, "measured": True, "samples": 10, "total_s": 2.0}
    for trial in trials:
        progress.observe(trial, 1, [step])
    progress.finish(trials[0], Outcome.OK, None, 4.75)
    progress.finish(trials[1], Outcome.CANCELLED, "interrupted")
    assert [progress.rows[trial.key].samples_per_s for trial in trials] == [4.75, None]


def test_another_attempt_begins_without_the_rate_of_the_one_before() -> None:
    trial = make_trial(1)
    progress = SweepProgress([trial])
    progress.observe(trial, 1, [{"kind": "step", "step": 4, "loss": 0.5, "measured": True, "samples": 10, "total_s": 2.0}])
    progress.observe(trial, 2, [{"kind": "phase", "name": "build"}])
    row = progress.rows[trial.key]
    assert (row.attempt, row.step, row.loss, row.samples_per_s) == (2, 0, None, None)


def test_a_short_terminal_shows_the_trials_around_the_first_that_runs() -> None:
    trials = [make_trial(number) for number in range(1, 21)]
    progress = SweepProgress(trials)
    for trial in trials[:10]:
        progress.finish(trial, Outcome.OK, None)
    shown = [line for line in text_of(progress, height=11) if " · #1" in line]
    assert [line.split("  ")[0] for line in shown] == [trial.name for trial in trials[8:13]]
    assert text_of(progress, height=11)[-1].startswith("10 of 20 trials")


def test_the_time_left_is_said_until_all_is_done() -> None:
    trials = [make_trial(1), make_trial(2)]
    progress = SweepProgress(trials, {trial.cell: 30.0 for trial in trials})
    assert text_of(progress)[-1] == "0 of 2 trials, about 1:00 left."
    for trial in trials:
        progress.finish(trial, Outcome.OK, None)
    assert text_of(progress)[-1] == "2 of 2 trials."


def test_without_a_terminal_each_end_is_a_line() -> None:
    trials = [make_trial(1), make_trial(2)]
    progress = SweepProgress(trials)
    console = Console(file=StringIO(), width=200)
    progress.set_pool_problem("p", "does not answer")
    with show(progress, console):
        progress.finish(trials[0], Outcome.CRASHED, "made up")
    lines = [line.split(" ", 1)[1] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines == ["pool p: does not answer", f"1/2 {trials[0].name}: crashed (made up)"]
