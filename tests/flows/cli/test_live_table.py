"""The live table: what stands in it, and the lines that take its place where there is no terminal."""

from __future__ import annotations

import re
import threading
import time
from io import StringIO

import pytest
from rich.console import Console

from experiments.trial import Outcome
from flows.cli import live_table
from flows.cli.live_table import render, show
from flows.cli.ratios import Ratios
from flows.runtime import progress as progress_module
from flows.runtime.progress import SweepProgress
from tasks.sweep.pool_slots import IN_USE
from tests.tasks.plan_support import make_result, make_suite, make_trial


class Clock:
    """In place of the monotonic clock: stands at 1,000 s until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress_module, "time", found)
    monkeypatch.setattr(live_table, "time", found)
    return found


def text_of(progress: SweepProgress, height: int = 40, ratios: Ratios | None = None, width: int = 200) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height)
    console.print(render(progress, height, ratios))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_each_trial_has_a_row_and_the_last_line_counts_them(clock: Clock) -> None:
    trials = [make_trial(number) for number in (1, 2, 3)]
    progress = SweepProgress(trials)
    progress.finish(trials[0], make_result(trials[0]))
    progress.start(trials[1])
    clock.now += 65
    steps = [{"kind": "step", "step": 4, "loss": 0.51234, "measured": True, "samples": 10, "total_s": 2.0}]
    progress.observe(trials[1], 2, [{"kind": "environment", "emulated": True}, {"kind": "phase", "name": "training"}, *steps])
    progress.wait(trials[2], "pool in use")
    progress.set_pool_problem("p", "does not answer")
    progress.note = "publishing"
    heading, *rows, pool, footer = [re.split(r"  +", line) for line in text_of(progress)]
    assert heading == ["trial", "state", "time", "steps", "samples/s", "loss"]
    assert rows[0] == [trials[0].name, "ok", "1:00"]
    assert rows[1] == [trials[1].name, "training (emulated) (attempt 2)", "1:05", "━━━━──── 4/7", "5.000", "0.5123"]
    assert rows[2] == [trials[2].name, "pool in use"]
    assert pool == ["pool p: does not answer"]
    assert footer[0].startswith("1 of 3 trials") and footer[0].endswith(". publishing")


@pytest.mark.parametrize("width", [80, 120])
def test_why_a_trial_runs_again_stands_below_the_table(width: int) -> None:
    trials = [make_trial(number) for number in (1, 2, 3)]
    progress = SweepProgress(trials)
    why = "other work took 38 % of the processor's time in the measured window, at most 5 % may, and the clock was at 1.9 of 2.4 GHz"
    progress.wait(trials[1], f"again: it was disturbed, {why}")
    lines = text_of(progress, width=width)
    assert [re.split(r"  +", line) for line in lines[1:4]] == [
        [trials[0].name, "waiting"],
        [trials[1].name, "again"],
        [trials[2].name, "waiting"],
    ]
    assert " ".join(lines[4:-1]) == f"{trials[1].name}: again: it was disturbed, {why}"
    progress.start(trials[1])
    assert len(text_of(progress, width=width)) == 5, "it runs, so nothing is said of it any more"


def searched(fits: int | None, too_large: int | None) -> dict[str, object]:
    """What the journal of a trial says of a size that its search for the largest batch has tried."""
    return {"kind": "note", "text": "batch size ...", "batch_search": {"fits": fits, "too_large": too_large}}


def test_what_the_search_for_the_largest_batch_knows_stands_below_the_table_until_it_ends() -> None:
    trial = make_trial(1)
    progress = SweepProgress([trial])
    progress.start(trial)
    progress.observe(trial, 1, [{"kind": "phase", "name": "max_batch"}])
    assert "  searching the largest batch  " in text_of(progress)[1] and len(text_of(progress)) == 3
    for edges, known in (((57, None), "57 fits"), ((57, 140), "57 fits, 140 does not"), ((None, 1), "1 does not fit")):
        progress.observe(trial, 1, [searched(*edges), {"kind": "note", "text": "of something else"}])
        assert text_of(progress)[2] == f"{trial.name}: searching the largest batch: {known}"
    progress.observe(trial, 1, [{"kind": "attempt"}, {"kind": "phase", "name": "start"}])
    assert "  start  " in text_of(progress)[1] and len(text_of(progress)) == 3


def test_without_a_terminal_each_size_that_the_search_has_tried_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(1)
    progress, console, stop = SweepProgress([trial]), Console(file=StringIO(), width=40), threading.Event()
    phase = {"kind": "phase", "name": "max_batch"}
    told = [[phase], [], [searched(57, None)], [searched(57, None)], [searched(57, 140)], [{"kind": "phase", "name": "start"}]]
    then = iter([*((lambda records=records: progress.observe(trial, 1, records)) for records in told), stop.set])
    monkeypatch.setattr(stop, "wait", lambda timeout: next(then)())
    live_table._lines(progress, console, stop)
    lines = [line.split(" ", 1)[1] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines == [f"{trial.name}: searching the largest batch{known}" for known in ("", ": 57 fits", ": 57 fits, 140 does not")]


def test_a_trial_that_is_to_last_some_seconds_counts_past_its_least_steps() -> None:
    trial = make_trial(1, parameters={"steps": 5, "warmup_steps": 2, "measure_s": 30.0})
    progress = SweepProgress([trial])
    progress.start(trial)
    step = {"kind": "step", "loss": 0.5, "measured": True, "samples": 10, "total_s": 2.0}
    for number, shown in ((4, "──────── 4/7+"), (12, "━─────── 12/7+")):  # 2 and 4 of the 30 s that it is to measure
        progress.observe(trial, 1, [{**step, "step": number}])
        assert shown in text_of(progress)[1]
    progress.finish(trial, make_result(trial))
    assert "12/7+" in text_of(progress)[1] and "━" not in text_of(progress)[1]


def test_a_warm_up_that_is_to_last_some_seconds_is_no_part_of_what_is_done() -> None:
    trial = make_trial(1, parameters={"steps": 4, "warmup_steps": 2, "warmup_s": 30.0})
    progress = SweepProgress([trial])
    progress.start(trial)
    step = {"kind": "step", "loss": 0.5, "samples": 10, "total_s": 2.0}
    for number, measured, shown in ((40, False, "──────── 40/6+"), (41, True, "━━────── 41/6+"), (42, True, "━━━━──── 42/6+")):
        progress.observe(trial, 1, [{**step, "step": number, "measured": measured}])
        assert shown in text_of(progress)[1]


def test_an_ended_trial_shows_its_results_rate_and_a_failed_one_none() -> None:
    trials = [make_trial(number) for number in (1, 2)]
    progress = SweepProgress(trials)
    step = {"kind": "step", "step": 4, "loss": 0.5, "measured": True, "samples": 10, "total_s": 2.0}
    for trial in trials:
        progress.observe(trial, 1, [step])
    progress.finish(trials[0], make_result(trials[0], summary={"throughput": 4.75}))
    progress.finish(trials[1], make_result(trials[1], Outcome.CANCELLED))
    assert [progress.rows[trial.key].samples_per_s for trial in trials] == [4.75, None]


@pytest.mark.parametrize(("rate", "shown"), [(33248.4, "33,248"), (581.52, "581.5"), (4.75, "4.750")])
def test_a_rate_is_written_as_in_the_tables_of_a_report(rate: float, shown: str) -> None:
    trial = make_trial(1)
    progress = SweepProgress([trial])
    progress.finish(trial, make_result(trial, summary={"throughput": rate}))
    assert f" {shown} " in f"{text_of(progress)[1]} "
    assert live_table._end_of(progress.rows[trial.key])[1] == f"{trial.name}: ok, {shown} samples/s"


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
        progress.finish(trial, make_result(trial))
    shown = [line for line in text_of(progress, height=11) if " · #1" in line]
    assert [line.split("  ")[0] for line in shown] == [trial.name for trial in trials[8:13]]
    assert text_of(progress, height=11)[-1].startswith("10 of 20 trials, 0:00 elapsed")


def test_the_time_left_is_said_until_all_is_done() -> None:
    trials = [make_trial(1), make_trial(2)]
    progress = SweepProgress(trials, {trial.cell: 30.0 for trial in trials})
    assert text_of(progress)[-1] == "0 of 2 trials, 0:00 elapsed, about 1:00 left."
    for trial in trials:
        progress.finish(trial, make_result(trial))
    assert text_of(progress)[-1] == "2 of 2 trials, 0:00 elapsed."


def test_without_a_terminal_each_end_is_a_line() -> None:
    trials = [make_trial(1), make_trial(2)]
    progress = SweepProgress(trials)
    console = Console(file=StringIO(), width=200)
    progress.set_pool_problem("p", "does not answer")
    with show(progress, console):
        progress.finish(trials[0], make_result(trials[0], Outcome.CRASHED, started_at=time.time() - 5, finished_at=time.time()))
    lines = [line.split(" ", 1)[1] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines == ["pool p: does not answer", f"1/2 {trials[0].name}: crashed (made up)"]


def test_a_sweep_that_waits_for_another_one_says_so_and_when_it_goes_on(clock: Clock) -> None:
    trials = [make_trial(number) for number in (1, 2)]
    progress = SweepProgress(trials)
    progress.wait(trials[0], IN_USE)
    clock.now += 60
    assert progress.problems() == {}, "its own last trial ends"
    progress.wait(trials[0], IN_USE, ["sweep bert-1"])
    clock.now += 4.9
    assert progress.problems() == {}
    clock.now += 0.2
    progress.wait(trials[0], IN_USE, ["sweep bert-1"])  # it is told each time
    pool = trials[0].pool
    assert progress.problems() == {f"pool {pool}": "in use by sweep bert-1, which this one waits for"}
    progress.wait(trials[0], IN_USE, ["", "sweep bert-2"])
    assert progress.problems() == {f"pool {pool}": "in use by another sweep and sweep bert-2, which this one waits for"}
    progress.start(trials[0])
    progress.wait(trials[1], IN_USE, ["sweep bert-1"])
    clock.now += 60
    assert progress.problems() == {}, "this sweep itself has the slots"


def test_without_a_terminal_a_pool_that_another_sweep_held_is_free_and_one_that_was_down_answers_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(1)
    progress = SweepProgress([trial])
    console = Console(file=StringIO(), width=200)
    stop = threading.Event()
    then = iter([lambda: progress.start(trial), lambda: progress.set_pool_problem("q", None), stop.set])
    monkeypatch.setattr(stop, "wait", lambda timeout: next(then)())
    progress.set_pool_problem("q", "does not answer")
    progress.wait(trial, IN_USE, ["sweep bert-1"])
    clock.now += 60
    live_table._lines(progress, console, stop)
    lines = [line.split(" ", 1)[1] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert sorted(lines[:2]) == [f"pool {trial.pool}: in use by sweep bert-1, which this one waits for", "pool q: does not answer"]
    assert lines[2:] == [f"pool {trial.pool}: is free", "pool q: answers again"]


def test_trials_that_ended_before_this_run_are_one_line_together() -> None:
    trials = [make_trial(number) for number in range(1, 5)]
    progress = SweepProgress(trials)
    console = Console(file=StringIO(), width=200)
    now = time.time()
    with show(progress, console):
        progress.take_up([(trial, make_result(trial, started_at=1.7e9, finished_at=1.7e9 + 60)) for trial in trials[:2]])
        progress.finish(trials[2], make_result(trials[2], started_at=now - 5, finished_at=now))
        done = [(trial, make_result(trial, started_at=now - 5, finished_at=now)) for trial in trials[:3]]
        progress.take_up(done)  # as before another round: what this run did is still its own
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [lines[0], *(line.split(" ", 1)[1] for line in lines[1:])] == ["2 of 4 trials ended earlier", f"3/4 {trials[2].name}: ok"]
    assert [row.earlier for row in progress.rows.values()] == [True, True, False, False]
    assert text_of(progress)[-1].startswith("3 of 4 trials"), "the table has them all"


def test_a_trial_of_an_earlier_flow_has_the_time_at_which_it_ended() -> None:
    trial = make_trial(1)
    progress = SweepProgress([trial])
    console = Console(file=StringIO(), width=200)
    with show(progress, console):
        progress.finish(trial, make_result(trial, started_at=1.7e9, finished_at=1.7e9 + 60))
    (line,) = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert line == f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(1.7e9 + 60))} 1/1 {trial.name}: ok"


@pytest.mark.parametrize(
    ("most", "said"), [(4, "of 2 trials so far (at most 4)"), (None, "of 2 trials so far,"), (2, "of 2 trials,"), (1, "of 2 trials,")]
)
def test_a_total_that_grows_says_so(most: int | None, said: str) -> None:
    trials = [make_trial(1), make_trial(2)]
    progress = SweepProgress(trials, {trial.cell: 30.0 for trial in trials})
    progress.set_growth(most)
    footer = text_of(progress)[-1]
    assert said in footer and ("left in this round" in footer) is ("so far" in footer)


def test_the_ratio_so_far_stands_at_the_last_trial_of_a_cell_and_nothing_is_decided() -> None:
    trials = [make_trial(number, repeat=repeat) for repeat in (1, 2) for number in (1, 2)]
    trials = [trial.model_copy(update={"key": f"{place:016x}", "index": place}) for place, trial in enumerate(trials)]
    suite = make_suite(baseline={"number": 1})
    progress, ratios = SweepProgress(trials, metric="throughput"), Ratios(suite)
    rates = [100.0, 150.0, 102.0, 150.0]
    assert "ratio" not in text_of(progress, ratios=ratios)[0]
    for place, (trial, rate) in enumerate(zip(trials, rates, strict=True)):
        progress.finish(
            trial, make_result(trial, started_at=1.7e9 + 60 * place, finished_at=1.7e9 + 60 * place + 60, summary={"throughput": rate})
        )
        if place == 1:
            lines = text_of(progress, ratios=ratios)
            assert lines[2].endswith("x1.50 ?"), "one trial a side has no interval"
            ratios._not_before = 0.0
    heading, *rows, _ = text_of(progress, ratios=ratios)
    assert heading.endswith("ratio so far") and [row.endswith("?") for row in rows] == [False, False, False, True]
    found = re.search(r"x(\d\.\d\d) \((\d\.\d\d)–(\d\.\d\d)\) \?$", rows[3])
    assert found and float(found[1]) == pytest.approx((150 * 150 / (100 * 102)) ** 0.5, abs=0.005)
    assert float(found[2]) < float(found[1]) < float(found[3])
