"""What an attempt ended as where it could not say so itself, and the detail of a failure."""

from __future__ import annotations

import pytest

from cluster.journal.replication import STORAGE_LOST
from cluster.launchers import LaunchError
from experiments.trial import Outcome
from tests.tasks.fake_cluster import KEY, Cluster, at, cluster, left_by_a_dead_flow, runner, trial

__all__ = ["cluster"]  # a fixture


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
