"""How long an attempt is given, and what a stop ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.journal.journal import JournalWriter
from cluster.journal.lines import Record
from cluster.launchers import LaunchError
from experiments.trial import Outcome
from tests.tasks.fake_cluster import ASK_AGAIN_S, KEY, POLL_S, Cluster, at, cluster, left_by_a_dead_flow, runner, trial

__all__ = ["cluster"]  # a fixture


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
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.INFRA, 1, [f"{KEY}-a1"])
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


def test_a_pool_that_never_tells_that_a_trial_with_a_result_has_ended_is_waited_for_a_minute(cluster: Cluster) -> None:
    """As Ray, where a node's raylet was killed. The trial measured, and its sweep goes on."""

    def end_unseen(cluster: Cluster) -> None:
        cluster.finish(1)
        cluster.jobs[f"{KEY}-a1"] = "RUNNING"

    cluster.on_ask = at(3, end_unseen)
    result = runner(cluster, hang_timeout_s=600).run(trial(cluster))
    assert (result.outcome, result.attempt) == (Outcome.OK, 1)
    assert 60 < cluster.clock.passed <= 60 + 3 * POLL_S and "stop" in cluster.calls
