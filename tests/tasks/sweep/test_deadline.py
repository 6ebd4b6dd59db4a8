"""Which trials are expected to end in time, by what is known of them."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep import deadline, slot_log
from tasks.sweep.deadline import Deadline, TimesSoFar, expected_trial_s
from tasks.sweep.round_time import longest_trials, trial_times
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.store import SweepStore, readable_result
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

ONE, TWO, WIDE = make_trial(1), make_trial(2), make_trial(3, parameters={"devices": 4, "measure_s": 6.0})


def took(trial: Trial, seconds: float, start: float = 0.0) -> tuple[Trial, TrialResult]:
    return trial, make_result(trial, started_at=start, finished_at=start + seconds)


def so_far(*ended: tuple[Trial, TrialResult]) -> TimesSoFar:
    return TimesSoFar(trial_times(ended), longest_trials(ended), {trial.cell: trial.parameters["devices"] for trial, _ in ended})


def test_a_cell_takes_what_it_took_here_else_in_the_past() -> None:
    assert expected_trial_s(ONE, so_far(took(ONE, 20.0)), {ONE.cell: 99.0}) == 20.0
    assert expected_trial_s(ONE, so_far(), {ONE.cell: 99.0}) == 99.0


def test_what_lies_between_trials_counts() -> None:
    assert expected_trial_s(ONE, so_far(took(ONE, 20.0), took(TWO, 10.0, 23.0)), {}) == 23.0


def test_an_unknown_cell_takes_as_long_as_the_slowest_with_as_many_devices() -> None:
    ended = so_far(took(ONE, 20.0), took(WIDE, 50.0, 20.0))
    assert expected_trial_s(TWO, ended, {}) == 20.0
    assert expected_trial_s(make_trial(4, parameters={"devices": 4}), ended, {}) == 50.0
    assert expected_trial_s(make_trial(5, parameters={"devices": 2}), ended, {}) == 50.0, "none has two: the slowest of all"


def test_a_cell_that_is_new_compiles_as_others_did_and_one_that_is_known_does_not() -> None:
    compiled = (ONE, make_result(ONE, started_at=0.0, finished_at=100.0, summary={"compile_seconds": 80.0}))
    assert expected_trial_s(ONE, so_far(compiled, took(TWO, 30.0)), {}) == 20.0
    assert expected_trial_s(make_trial(5), so_far(compiled, took(TWO, 30.0)), {}) == 100.0
    failed = (ONE, make_result(ONE, Outcome.CRASHED, started_at=0.0, finished_at=500.0))
    assert expected_trial_s(make_trial(5), so_far(failed, took(TWO, 30.0)), {}) == 30.0


def test_of_what_nothing_is_known_the_window_counts_at_least() -> None:
    assert expected_trial_s(WIDE, so_far(), {}) == 6.0
    assert expected_trial_s(WIDE, so_far(), {}, usual_s=25.0) == 25.0
    assert expected_trial_s(ONE, so_far(), {}) == 0.0
    warmed = make_trial(6, parameters={"warmup_s": 30.0, "measure_s": 6.0})
    assert expected_trial_s(warmed, so_far(), {}) == 36.0 and make_trial(7, parameters={"warmup_s": 30.0}).least_s == 30.0


@pytest.mark.parametrize(("now", "fits"), [(80.0, True), (80.1, False)])
def test_a_trial_fits_up_to_the_last_second(now: float, fits: bool) -> None:
    plan = make_plan([ONE, TWO])
    store = saved(plan)
    store.save_result(make_result(ONE, started_at=0.0, finished_at=20.0))
    assert Deadline(100.0, {}, clock=lambda: now).fits(TWO, store, plan) is fits


def test_a_trial_that_failed_tells_no_time() -> None:
    plan = make_plan([ONE, TWO])
    store = saved(plan, t1=Outcome.CRASHED)
    assert Deadline(100.0, {}, usual_s=30.0, clock=lambda: 70.0).fits(TWO, store, plan)
    assert not Deadline(100.0, {}, usual_s=30.0, clock=lambda: 71.0).fits(TWO, store, plan)


@pytest.mark.parametrize(("now", "fits"), [(80.0, True), (80.1, False)])
def test_the_pause_between_two_runs_of_a_command_is_no_time_between_trials(now: float, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a trial in each of two runs it was the only gap. It once kept a sweep of a campaign from going on for six minutes of a GPU."""
    plan = make_plan([ONE, TWO, WIDE])
    store = saved(plan)
    for trial, began in ((ONE, 0.0), (TWO, 500.0)):
        monkeypatch.setattr(slot_log.time, "time", lambda began=began: began)
        log = SlotLog(store.dir / "slots.jsonl")  # another one: another flow
        log.taken(trial.key, "cpu", ["cpu-0"], began)
        log.given_back(trial.key)
        store.save_result(make_result(trial, started_at=began, finished_at=began + 20.0))
    assert Deadline(100.0, {}, clock=lambda: now).fits(WIDE, store, plan) is fits


def test_each_result_is_read_once_and_again_where_its_trial_was_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign asks before each trial, so a sweep of n trials once read n²/2 results."""
    read: list[str] = []

    def noted(store: SweepStore, key: str) -> TrialResult | None:
        read.append(key)
        return readable_result(store, key)

    monkeypatch.setattr(deadline, "readable_result", noted)
    trials = [make_trial(number, parameters={"devices": 1}) for number in range(1, 9)]
    plan = make_plan(trials)
    store, ends = saved(plan), Deadline(100.0, {}, clock=lambda: 70.0)
    for trial in trials:
        assert ends.fits(trial, store, plan)
        store.save_result(make_result(trial, started_at=0.0, finished_at=30.0))
    assert read == [trial.key for trial in trials[:-1]]
    assert ends.fits(trials[0], store, plan) and read == [trial.key for trial in trials]
    store.save_result(make_result(trials[0], started_at=0.0, finished_at=31.0))
    assert not ends.fits(trials[0], store, plan) and read[len(trials) :] == [trials[0].key]
    (store.trial_dir(trials[0].key) / "result.json").unlink()
    assert ends.fits(trials[0], store, plan) and len(read) == len(trials) + 1, "it runs again"
