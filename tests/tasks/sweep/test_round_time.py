"""What a round takes: means of what ran here, with the time between trials, pools side by side."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.sweep.round_time import TrialTimes, trial_times
from tests.tasks.plan_support import make_result, make_trial


def test_means_of_what_ended_ok_and_the_time_between() -> None:
    one, two = make_trial(1), make_trial(2)
    ended = [
        (one, make_result(one, started_at=0.0, finished_at=10.0)),
        (two, make_result(two, started_at=12.0, finished_at=32.0)),
        (one, make_result(one, started_at=34.0, finished_at=48.0)),
        (two, make_result(two, Outcome.CRASHED, started_at=50.0, finished_at=51.0)),
    ]
    times = trial_times(ended, {one.cell: 99.0, "other": 5.0})
    assert times.seconds == {one.cell: 12.0, two.cell: 20.0, "other": 5.0}
    assert times.between_s == 2.0
    assert times.of_round([one, two]) == pytest.approx(36.0)
    assert times.of_round([make_trial(3)]) is None and times.of_round([]) == 0.0


def test_pools_work_side_by_side() -> None:
    one, other = make_trial(1, pool="a"), make_trial(2, pool="b")
    assert TrialTimes({one.cell: 30.0, other.cell: 40.0}, 1.0).of_round([one, other]) == 41.0


def test_pools_of_this_machine_take_turns() -> None:
    one, other = make_trial(1, pool="cpu"), make_trial(2, pool="cuda")
    assert TrialTimes({one.cell: 30.0, other.cell: 40.0}, 1.0).of_round([one, other]) == 72.0


def test_a_cold_compilation_is_not_paid_again() -> None:
    one = make_trial(1)
    cold = make_result(one, started_at=0.0, finished_at=40.0, summary={"throughput": 1.0, "compile_seconds": 27.0})
    cached = make_result(one, started_at=40.0, finished_at=53.0, summary={"throughput": 1.0, "compile_seconds": None})
    assert trial_times([(one, cold)]).seconds == {one.cell: 13.0}
    assert trial_times([(one, cold), (one, cached)]).seconds == {one.cell: 13.0}


def test_a_trace_of_the_first_repeats_alone_is_not_paid_again() -> None:
    """It once doubled what a round was expected to take, so that a campaign left a sweep after its first round."""
    first, each = (make_trial(n, parameters={"profile_steps": 4, **more}) for n, more in ((1, {"profile_repeats": 1}), (2, {})))
    summary = {"throughput": 1.0, "trace_seconds": 14.0}
    traced = make_result(first, started_at=0.0, finished_at=29.0, summary=summary)
    assert trial_times([(first, traced)]).seconds == {first.cell: 15.0}
    assert trial_times([(each, traced)]).seconds == {each.cell: 29.0}, "every repeat of it is traced"
    for repeat, seconds in ((1, 29.0), (2, 29.0), (3, 15.0)):
        some = make_trial(4, repeat=repeat, parameters={"profile_steps": 4, "profile_repeats": 3})
        assert trial_times([(some, traced)]).seconds == {some.cell: seconds}, "the next repeat is traced too, but after the third"
    assert trial_times([(first, make_result(first, started_at=0.0, finished_at=29.0))]).seconds == {first.cell: 29.0}


def test_a_search_for_the_largest_batch_is_not_paid_again() -> None:
    """Counted for each repeat, it once kept the second and third round of a campaign's sweep out of a budget that had room for both."""
    one = make_trial(1, parameters={"batch_size": "max"})
    searched = make_result(one, started_at=0.0, finished_at=240.0, summary={"throughput": 1.0, "batch_search_seconds": 170.0})
    again = make_result(one, started_at=240.0, finished_at=320.0, summary={"throughput": 1.0, "batch_search_seconds": None})
    assert trial_times([(one, searched)]).seconds == {one.cell: 70.0}
    assert trial_times([(one, searched), (one, again)]).seconds == {one.cell: 75.0}


def test_a_pause_between_two_runs_of_a_command_is_no_time_between_trials() -> None:
    """Of three trials, one gap is that pause: it once kept every further round out of a campaign."""
    one, two, three = make_trial(1), make_trial(2), make_trial(3)
    starts = [(one, 0.0), (two, 11.0), (three, 81.0)]
    ended = [(trial, make_result(trial, started_at=at, finished_at=at + 10.0)) for trial, at in starts]
    assert trial_times(ended).between_s == 1.0
    assert trial_times(ended).of_round([one, two, three]) == 33.0


def test_only_gaps_within_a_flow_count_where_flows_are_known() -> None:
    trials = [make_trial(n) for n in range(1, 6)]
    starts = (0.0, 1000.0, 1013.0, 1030.0, 2000.0)  # the gaps: 990, 3, 7, 960
    ended = [(trial, make_result(trial, started_at=at, finished_at=at + 10.0)) for trial, at in zip(trials, starts, strict=True)]
    flows = dict(zip((trial.key for trial in trials), "abbbc", strict=True))
    assert trial_times(ended, flows=flows).between_s == 3.0
    assert trial_times(ended).between_s == 7.0, "of four the second"
    assert trial_times([ended[0], ended[4]], flows=flows).between_s == 0.0, "none within a flow"
