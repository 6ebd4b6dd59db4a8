"""How often a trial is tried, what each attempt ended as, and how long each is given."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from cluster import launchers
from cluster.journal.journal import JournalError, JournalWriter, Record
from cluster.journal.replication import STORAGE_LOST
from cluster.launchers import LaunchError
from experiments.trial import Outcome
from tasks.sweep.failure_policy import Policy
from tests.tasks.fake_cluster import ASK_AGAIN_S, KEY, POLL_S, Cluster, at, cluster, left_by_a_dead_flow, runner, trial

__all__ = ["cluster"]  # a fixture

PREEMPTED = (Outcome.INFRA, "preempted: x")
DISTURBED = (Outcome.OK, "other processes used 38 % of the CPU (limit 5 %)")


def attempts(number: int) -> list[str]:
    return [f"{KEY}-a{attempt}" for attempt in range(1, number + 1)]


# --- how often


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


# --- what an attempt that could not say so ended as


@pytest.mark.parametrize(
    ("code", "message", "outcome", "reason"),
    [
        (1, "exit status 1", Outcome.CRASHED, "exit status 1"),
        (127, "exit status 127", Outcome.CRASHED, "exit status 127"),
        (STORAGE_LOST, "exit status 75", Outcome.INFRA, "storage_lost: exit status 75"),
        (128, "exit status 128", Outcome.INFRA, "worker lost: exit status 128"),
        (137, "exit status 137", Outcome.INFRA, "worker lost: exit status 137"),
        (-9, "killed by SIGKILL", Outcome.INFRA, "worker lost: killed by SIGKILL"),
        (-11, "killed by SIGSEGV", Outcome.INFRA, "worker lost: killed by SIGSEGV"),
        (0, None, Outcome.INFRA, "worker lost: it ended without a result"),
        (None, None, Outcome.INFRA, "worker lost: it ended without a result"),
        (1, "the node was running low on memory", Outcome.INFRA, "host_oom: the node was running low on memory"),
        (1, "the node was preempted", Outcome.INFRA, "preempted: the node was preempted"),
        (None, "node is being drained", Outcome.INFRA, "preempted: node is being drained"),
    ],
)
def test_a_process_that_ended_without_a_result(
    cluster: Cluster, code: int | None, message: str | None, outcome: Outcome, reason: str
) -> None:
    cluster.exit_code, cluster.message = code, message
    cluster.on_ask = at(3, lambda cluster: cluster.jobs.update({f"{KEY}-a1": "FAILED"}))
    result = runner(cluster, retries=0, preemptions=0).run(trial(cluster))
    assert (result.outcome, result.reason, result.attempt) == (outcome, reason, 1)
    assert cluster.store.result(KEY) == result


def test_the_status_for_storage_that_was_lost_is_sysexits_tempfail() -> None:
    assert STORAGE_LOST == 75


def test_words_of_ray_in_why_a_pool_is_away_are_not_about_the_trial(cluster: Cluster) -> None:
    def away(cluster: Cluster) -> None:
        cluster.down = LaunchError("pool p drains")

    cluster.on_ask = at(3, away)
    result = runner(cluster, retries=0, wait_s=30).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "worker lost: pool p drains")


def test_a_result_of_an_earlier_attempt_is_not_this_ones(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.INFRA)
    cluster.exit_code = 1
    cluster.on_ask = lambda cluster: cluster.jobs.update(dict.fromkeys(cluster.started, "FAILED"))
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt) == (Outcome.CRASHED, 2)


def test_the_detail_of_a_failure_is_the_end_of_its_log(cluster: Cluster) -> None:
    cluster.text = "begin" + "x" * 3999 + "!"
    cluster.finish_all(Outcome.CRASHED)
    assert runner(cluster).run(trial(cluster)).detail == "x" * 3999 + "!"
    assert (cluster.store.trial_dir(KEY) / "log.txt").read_text().splitlines() == ["--- attempt 1 at 1970-01-01T00:00:01Z", cluster.text]


@pytest.mark.parametrize(("outcome", "text"), [(Outcome.OK, "much"), (Outcome.CRASHED, "")])
def test_a_trial_that_is_ok_needs_no_detail_and_an_empty_log_is_none(cluster: Cluster, outcome: Outcome, text: str) -> None:
    cluster.text = text
    cluster.finish_all(outcome)
    assert runner(cluster).run(trial(cluster)).detail is None


def test_the_log_that_a_process_of_this_machine_writes_itself_is_left_alone(cluster: Cluster) -> None:
    cluster.launcher = "local"
    made = trial(cluster)
    (cluster.store.trial_dir(KEY) / "log.txt").write_text("of the process itself")
    cluster.finish_all(Outcome.CRASHED)
    runner(cluster).run(made)
    assert (cluster.store.trial_dir(KEY) / "log.txt").read_text() == "of the process itself"


# --- how long


def step(cluster: Cluster, number: int, attempt: int = 1) -> None:
    with JournalWriter(cluster.store.trial_dir(KEY) / "journal.jsonl", attempt) as journal:
        journal.append("environment", emulated=True, host="h")
        journal.append("step", step=number)


def test_a_trial_that_makes_no_progress_is_ended_after_its_time_and_not_tried_again(cluster: Cluster) -> None:
    result = runner(cluster, hang_timeout_s=100).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.HANG, "no progress for 100 s before its first step")
    assert cluster.clock.passed == pytest.approx(100 + POLL_S)
    assert cluster.jobs == {f"{KEY}-a1": "STOPPED"}
    assert cluster.calls[-2:] == ["stop", "fetch last"]


def test_a_new_record_is_progress(cluster: Cluster) -> None:
    def go_on(cluster: Cluster) -> None:
        if cluster.clock.passed >= 60:
            step(cluster, 4)
            cluster.on_ask = lambda cluster: None

    cluster.on_ask = go_on
    result = runner(cluster, hang_timeout_s=100).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.HANG, "no progress for 100 s after step 4")
    assert 160 < cluster.clock.passed <= 160 + 2 * POLL_S
    assert (result.emulated, result.environment["host"]) == (True, "h")


def test_time_without_an_answer_is_no_hang_and_ends_as_lost(cluster: Cluster) -> None:
    def away(cluster: Cluster) -> None:
        cluster.down = LaunchError("pool p does not answer")

    cluster.on_ask = at(3, away)
    result = runner(cluster, retries=0, hang_timeout_s=10, lost_after_s=40, wait_s=1000).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "worker lost: pool p does not answer")
    assert cluster.clock.passed == pytest.approx(40 + POLL_S)
    assert "stop" not in cluster.calls and cluster.calls[-1] == "status"  # who does not answer is not asked more


def test_storage_that_stays_away_is_waited_for_as_long_as_the_pool_says(cluster: Cluster) -> None:
    cluster.storage_down = LaunchError("storage s3://b does not answer")
    result = runner(cluster, retries=0, hang_timeout_s=10, lost_after_s=60, wait_s=300).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "worker lost: storage s3://b does not answer")
    assert cluster.clock.passed == pytest.approx(300, abs=POLL_S)


def test_a_pool_that_comes_and_goes_spends_the_retries_and_the_trial_is_not_run_twice(cluster: Cluster) -> None:
    def come_and_go(cluster: Cluster) -> None:
        away = cluster.clock.passed % 110 >= 10
        cluster.down = LaunchError("pool p does not answer") if away else None

    cluster.on_ask = come_and_go
    result = runner(cluster, retries=2, lost_after_s=60, wait_s=1000).run(trial(cluster))
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.INFRA, 1, attempts(1))
    assert 220 + 70 <= cluster.clock.passed < 220 + 75  # lost for the third time


def test_each_record_is_passed_on_once_with_its_attempt(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    step(cluster, 1)
    observed: list[tuple[int, Sequence[Record]]] = []

    def second(cluster: Cluster) -> None:
        if cluster.jobs.get(f"{KEY}-a2") == "RUNNING":
            step(cluster, 1, attempt=2)
            cluster.finish(2)

    cluster.jobs.clear()
    cluster.on_ask = second
    runner(cluster, observed=observed).run(made)
    kinds = [(attempt, record["kind"]) for attempt, records in observed for record in records]
    assert kinds == [(attempt, kind) for attempt in (1, 2) for kind in ("attempt", "environment", "step", "close")]


def test_a_stopped_sweep_cancels_the_trial_and_says_why(cluster: Cluster) -> None:
    run = runner(cluster)
    cluster.on_ask = at(5, lambda cluster: (cluster.store.request_stop("enough"), run.stop.set()))
    result = run.run(trial(cluster))
    assert (result.outcome, result.reason, result.attempt) == (Outcome.CANCELLED, "enough", 1)
    assert cluster.jobs == {f"{KEY}-a1": "STOPPED"}


@pytest.mark.parametrize(
    ("ended", "taken"),
    [(Outcome.OK, True), (Outcome.DIVERGED, True), (Outcome.CRASHED, False), (Outcome.INFRA, False), (Outcome.CANCELLED, True)],
)
def test_being_stopped_explains_a_crash_and_nothing_that_was_measured(cluster: Cluster, ended: Outcome, taken: bool) -> None:
    run = runner(cluster)
    cluster.on_ask = at(3, lambda cluster: (run.stop.set(), cluster.finish(1, ended)))
    result = run.run(trial(cluster))
    assert result.outcome is (ended if taken else Outcome.CANCELLED)
    if not taken:
        assert result.reason == "the sweep was stopped"


def test_a_stopped_sweep_starts_nothing(cluster: Cluster) -> None:
    run = runner(cluster)
    run.stop.set()
    result = run.run(trial(cluster))
    assert (result.outcome, result.attempt, cluster.calls) == (Outcome.CANCELLED, 1, [])


def test_a_stop_ends_the_wait_for_a_pool(cluster: Cluster) -> None:
    cluster.down = LaunchError("pool p does not answer")
    run = runner(cluster, wait_s=600)
    cluster.on_ask = at(4, lambda cluster: run.stop.set())
    assert run.run(trial(cluster)).outcome is Outcome.CANCELLED
    assert cluster.clock.passed == 3 * ASK_AGAIN_S


def test_a_stop_ends_the_retries(cluster: Cluster) -> None:
    run = runner(cluster, retries=9)
    cluster.finish_all(Outcome.INFRA)
    end = cluster.on_ask
    cluster.on_ask = lambda cluster: (end(cluster), run.stop.set() if len(cluster.started) == 2 else None)
    result = run.run(trial(cluster))
    assert (result.outcome, len(cluster.started)) == (Outcome.CANCELLED, 2)
