"""How often a trial is tried, and which attempt is its result."""

from __future__ import annotations

import re

import pytest

from cluster import launchers
from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower, JournalWriter
from cluster.journal.lines import Record
from cluster.launchers import LaunchError
from experiments.trial import Outcome
from tasks.sweep import begin_attempt
from tasks.sweep.failure_policy import Policy
from tests.tasks.fake_cluster import KEY, Cluster, at, cluster, left_by_a_dead_flow, runner, trial

__all__ = ["cluster"]  # a fixture

PREEMPTED = (Outcome.INFRA, "preempted: x")
DISTURBED = (Outcome.OK, "other processes used 38 % of the CPU (limit 5 %)")


def attempts(number: int) -> list[str]:
    return [f"{KEY}-a{attempt}" for attempt in range(1, number + 1)]


def test_the_policy_where_nothing_else_is_said() -> None:
    assert Policy() == Policy(retries=2, preemptions=5, disturbed=1, hang_timeout_s=600.0)


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_an_infrastructure_failure_is_retried_so_often(cluster: Cluster, retries: int) -> None:
    cluster.finish_all(Outcome.INFRA)
    result = runner(cluster, retries=retries).run(trial(cluster))
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.INFRA, retries + 1, attempts(retries + 1))
    assert cluster.store.result(KEY) == result


@pytest.mark.parametrize("preemptions", [0, 1, 5])
def test_nodes_that_were_taken_back_have_a_budget_of_their_own(cluster: Cluster, preemptions: int) -> None:
    cluster.finish_all(PREEMPTED)
    result = runner(cluster, retries=0, preemptions=preemptions).run(trial(cluster))
    assert (result.outcome, result.reason) == PREEMPTED
    assert cluster.started == attempts(preemptions + 1)


def test_each_budget_is_spent_on_its_own(cluster: Cluster) -> None:
    cluster.finish_all(PREEMPTED, Outcome.INFRA, PREEMPTED, Outcome.INFRA, PREEMPTED, Outcome.OK)
    result = runner(cluster, retries=2, preemptions=3).run(trial(cluster))
    assert (result.outcome, result.attempt) == (Outcome.OK, 6)


@pytest.mark.parametrize("disturbed", [0, 1, 3])
def test_a_disturbed_trial_is_measured_again_so_often_and_then_keeps_its_flag(cluster: Cluster, disturbed: int) -> None:
    cluster.finish_all(DISTURBED)
    result = runner(cluster, retries=0, disturbed=disturbed).run(trial(cluster))
    assert (result.outcome, result.disturbed, result.attempt) == (*DISTURBED, disturbed + 1)
    assert cluster.started == attempts(disturbed + 1) and cluster.store.result(KEY) == result


@pytest.mark.parametrize("disturbed", [0, 1])
def test_a_disturbed_measurement_counts_whoever_started_it(cluster: Cluster, disturbed: int) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.on_ask = lambda cluster: [cluster.finish(int(job[-1]), *DISTURBED) for job, state in cluster.jobs.items() if state == "RUNNING"]
    result = runner(cluster, retries=0, disturbed=disturbed).run(made)
    assert (result.disturbed, result.attempt, len(cluster.started)) == (DISTURBED[1], 1 + disturbed, disturbed)


def test_what_was_measured_undisturbed_in_the_end_is_the_result(cluster: Cluster) -> None:
    cluster.finish_all(DISTURBED, DISTURBED, Outcome.OK)
    result = runner(cluster, retries=0, disturbed=5).run(trial(cluster))
    assert (result.outcome, result.disturbed, result.attempt, len(cluster.started)) == (Outcome.OK, None, 3, 3)


@pytest.mark.parametrize("then", [Outcome.CRASHED, Outcome.INFRA, Outcome.CANCELLED])
def test_a_disturbed_measurement_is_not_lost_to_an_attempt_that_measures_nothing(cluster: Cluster, then: Outcome) -> None:
    cluster.finish_all(DISTURBED, then)
    result = runner(cluster, retries=1, disturbed=1).run(trial(cluster))
    assert (result.outcome, result.disturbed, result.attempt) == (*DISTURBED, 1)
    assert cluster.store.result(KEY) == result and len(cluster.started) == (3 if then is Outcome.INFRA else 2)


def test_a_machine_that_stays_busy_is_not_measured_on_for_ever(cluster: Cluster) -> None:
    """Two trials that were disturbed again show that a third would be."""
    run = runner(cluster, retries=0, disturbed=1)
    for number in (2, 4):
        cluster.finish_all(DISTURBED)
        (cluster.store.trial_dir(KEY) / "result.json").unlink(missing_ok=True)
        assert run.run(trial(cluster)).disturbed and len(cluster.started) == number
    (cluster.store.trial_dir(KEY) / "result.json").unlink()
    assert run.run(trial(cluster)).disturbed and len(cluster.started) == 5, "measured once, and not again"
    assert not run.disturbances.worth_while
    run.disturbances.measured_again(disturbed=False)
    assert run.disturbances.worth_while


def test_a_stop_leaves_the_disturbed_measurement(cluster: Cluster) -> None:
    run = runner(cluster, retries=0, disturbed=9)

    def stop_the_second(cluster: Cluster) -> None:
        if len(cluster.started) == 1 and cluster.jobs[cluster.started[0]] == "RUNNING":
            cluster.finish(1, *DISTURBED)
        elif len(cluster.started) == 2:
            run.stop.set()

    cluster.on_ask = stop_the_second
    result = run.run(trial(cluster))
    assert (result.disturbed, result.attempt) == (DISTURBED[1], 1) and cluster.store.result(KEY) == result


@pytest.mark.parametrize(("retries", "preemptions", "number"), [(1, 9, 4), (9, 2, 5)])
def test_either_budget_ends_it(cluster: Cluster, retries: int, preemptions: int, number: int) -> None:
    cluster.finish_all(PREEMPTED, Outcome.INFRA, PREEMPTED, Outcome.INFRA, PREEMPTED, Outcome.OK)
    result = runner(cluster, retries=retries, preemptions=preemptions).run(trial(cluster))
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.INFRA, number, attempts(number))


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.INFRA])
def test_what_says_something_of_the_trial_is_not_tried_again(cluster: Cluster, outcome: Outcome) -> None:
    cluster.finish_all(outcome)
    result = runner(cluster, retries=9).run(trial(cluster))
    assert (result.outcome, cluster.started) == (outcome, attempts(1))


def test_a_final_result_that_is_there_already_is_taken_and_the_pool_not_asked(cluster: Cluster) -> None:
    made = trial(cluster)
    cluster.finish(1, Outcome.CRASHED)
    assert runner(cluster).run(made).outcome is Outcome.CRASHED
    assert cluster.asked == 0


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDED"])
@pytest.mark.parametrize("number", [1, 2])
def test_an_attempt_whose_flow_died_before_it_could_note_it_goes_on(cluster: Cluster, number: int, state: str) -> None:
    """Of the second one the first one's launch.json is there."""
    made = left_by_a_dead_flow(cluster, "SUCCEEDED")
    folder = cluster.store.trial_dir(KEY)
    if number == 1:
        (folder / "launch.json").unlink()
    else:
        cluster.finish(1, Outcome.INFRA)
    with JournalWriter(folder / "journal.jsonl", number, trial=KEY):
        pass
    cluster.jobs[f"{KEY}-a{number}"] = state
    cluster.on_ask = lambda cluster: cluster.finish(number, Outcome.OK)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, number, [])
    saved = launchers.load(folder)
    assert saved is not None and (saved.attempt, saved.id) == (number, f"{KEY}-a{number}")


def test_a_damaged_journal_does_not_hide_the_launch_that_was_noted(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    folder = cluster.store.trial_dir(KEY)
    (folder / "journal.jsonl").write_bytes(b"no record\n")
    assert launchers.find(made, folder, lambda: cluster) == launchers.load(folder)
    (folder / "launch.json").unlink()
    with pytest.raises(JournalError, match=re.escape(f"{folder / 'journal.jsonl'}, line 1: ")):
        launchers.find(made, folder, lambda: cluster)


def test_a_journal_is_read_once_before_each_attempt(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counting(JournalFollower):
        def poll(self) -> list[Record]:
            read.append(len(cluster.started))
            return super().poll()

    for module in (launchers, begin_attempt):
        monkeypatch.setattr(module, "JournalFollower", Counting)
    cluster.finish_all(Outcome.INFRA, Outcome.INFRA, Outcome.OK)
    assert runner(cluster, retries=2).run(trial(cluster)).attempt == 3
    assert read == [0, 1, 2]


def test_attempts_are_counted_on_from_those_before(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.INFRA)
    cluster.finish_all(Outcome.OK)
    result = runner(cluster, retries=0).run(made)
    assert (result.attempt, cluster.started) == (2, [f"{KEY}-a2"])
    launch = launchers.load(cluster.store.trial_dir(KEY))
    assert launch is not None and (launch.attempt, launch.id) == (2, f"{KEY}-a2")


def test_only_the_first_attempt_that_a_dead_flow_left_costs_no_retry(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.jobs.clear()  # lost with its flow
    cluster.finish_all(Outcome.INFRA)
    result = runner(cluster, retries=1).run(made)
    assert (result.attempt, cluster.started) == (3, [f"{KEY}-a2", f"{KEY}-a3"])


def test_one_that_was_given_up_and_runs_still_is_followed_on(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.INFRA)
    cluster.jobs[f"{KEY}-a1"] = "RUNNING"
    cluster.on_ask = at(5, lambda cluster: cluster.finish(1))
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_one_that_was_cancelled_and_runs_still_is_stopped_before_it_is_run_again(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.CANCELLED)
    cluster.jobs[f"{KEY}-a1"] = "RUNNING"

    def end(cluster: Cluster) -> None:
        if cluster.jobs.get(f"{KEY}-a2") == "RUNNING":
            assert cluster.jobs[f"{KEY}-a1"] == "STOPPED"
            cluster.finish(2)

    cluster.on_ask = end
    assert runner(cluster).run(made).attempt == 2
    assert cluster.calls[:3] == ["status", "stop", "start"]


def test_a_pool_that_does_not_come_back_keeps_a_trial_from_being_run_twice(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.INFRA)
    cluster.down = LaunchError("pool p does not answer")
    result = runner(cluster, wait_s=30).run(made)
    assert (result.outcome, result.reason) == (Outcome.INFRA, "not started: pool p does not answer (waited 30 s for the pool)")
    assert cluster.started == [] and set(cluster.calls) == {"status"}


def test_the_result_of_a_worker_counts_though_its_pool_has_gone(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.INFRA)
    cluster.down = LaunchError("pool p does not answer")
    cluster.on_ask = at(3, lambda cluster: cluster.finish(1, Outcome.OK))
    assert runner(cluster, wait_s=30).run(made).outcome is Outcome.OK


def test_a_journal_that_was_changed_is_not_appended_to(cluster: Cluster) -> None:
    made = trial(cluster)
    path = cluster.store.trial_dir(KEY) / "journal.jsonl"
    with JournalWriter(path, 1) as journal:
        journal.append("step", step=1)
    path.write_bytes(path.read_bytes().replace(b'"step":1', b'"step":2'))
    with pytest.raises(JournalError):
        runner(cluster).run(made)
    assert cluster.calls == []
