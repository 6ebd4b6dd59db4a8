"""Following trials over pools that come and go: decided on a launcher without a cluster and a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from cluster.journal.journal import JournalWriter
from cluster.launchers import LaunchError, LaunchRefused
from experiments.trial import Outcome
from tests.tasks.fake_cluster import ASK_AGAIN_S, KEY, POLL_S, Cluster, Told, at, cluster, left_by_a_dead_flow, runner, trial

__all__ = ["cluster"]  # a fixture


def test_a_pool_that_is_down_is_waited_for_and_said_to_be(cluster: Cluster) -> None:
    told = Told()
    cluster.down = LaunchError("pool p does not answer")

    def back(cluster: Cluster) -> None:
        cluster.down = None
        cluster.on_ask = at(8, lambda cluster: cluster.finish(1))

    cluster.on_ask = at(5, back)
    result = runner(cluster, told, wait_s=60).run(trial(cluster))
    assert result.outcome is Outcome.OK and cluster.started == [f"{KEY}-a1"]
    assert [problem for problem, _ in told.said] == ["pool p does not answer", None]
    assert told.said[0][1] == 60
    assert cluster.clock.passed == pytest.approx(4 * ASK_AGAIN_S + POLL_S)


def test_slots_are_given_back_while_a_pool_that_is_down_is_waited_for(cluster: Cluster) -> None:
    log = list[str]()

    @contextmanager
    def without_slots() -> Iterator[None]:
        log.append("given back")
        yield
        log.append("taken")

    def back(cluster: Cluster) -> None:
        cluster.down = None
        cluster.finish_all(Outcome.OK)

    cluster.down = LaunchError("pool p does not answer")
    cluster.on_ask = at(3, back)
    run = replace(runner(cluster), without_slots=without_slots, starting=lambda key, attempt: log.append(f"start {attempt}"))
    assert run.run(trial(cluster)).outcome is Outcome.OK
    assert log == ["start 1", "given back", "taken", "given back", "taken", "start 1"], "the pool has started it: told once"


def test_the_slots_of_a_trial_that_may_run_are_kept(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.finish(1, Outcome.INFRA)
    cluster.down = LaunchError("pool p does not answer")
    run = replace(runner(cluster, wait_s=30), without_slots=lambda: pytest.fail("it gives them back"))
    assert run.run(made).outcome is Outcome.INFRA


def test_after_the_stated_time_trials_end_as_infra_and_the_next_ones_do_not_wait_anew(cluster: Cluster) -> None:
    cluster.down = LaunchError("pool p does not answer")
    run = runner(cluster, wait_s=30)
    first = run.run(trial(cluster))
    assert (first.outcome, first.reason) == (Outcome.INFRA, "not started: pool p does not answer (waited 30 s for the pool)")
    assert (cluster.clock.passed, cluster.asked) == (30, 11)
    assert run.run(trial(cluster)).outcome is Outcome.INFRA
    assert (cluster.clock.passed, cluster.asked) == (30, 12)


def test_a_refusal_is_not_waited_for(cluster: Cluster) -> None:
    told = Told()
    cluster.down = LaunchRefused("pool p refuses the token")
    result = runner(cluster, told, wait_s=600).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "not started: pool p refuses the token")
    assert cluster.asked == 1 and told.said == [("pool p refuses the token", 0.0)]


def test_what_a_dead_flow_left_running_is_followed_by_its_id(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.on_ask = at(6, lambda cluster: cluster.finish(1))
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_it_is_not_run_again_because_its_pool_does_not_answer(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.down = LaunchError("pool p does not answer")

    def back(cluster: Cluster) -> None:
        cluster.down = None
        cluster.finish(1)

    cluster.on_ask = at(5, back)
    result = runner(cluster, lost_after_s=60).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_one_that_was_given_up_while_its_pool_was_away_is_followed_on_when_the_pool_is_back(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.down = LaunchError("pool p does not answer")
    first = runner(cluster, retries=0).run(made)
    assert first.outcome is Outcome.INFRA and cluster.started == []  # neither then
    cluster.down, cluster.asked = None, 0
    cluster.on_ask = at(6, lambda cluster: cluster.finish(1))
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])  # nor now is it run twice


def test_a_result_that_comes_after_the_trial_was_given_up_counts(cluster: Cluster) -> None:
    def away(cluster: Cluster) -> None:
        cluster.down = LaunchError("pool p does not answer")
        cluster.on_ask = come

    def come(cluster: Cluster) -> None:
        if cluster.clock.passed > 70:  # it was lost after 60 s, and is asked about again
            cluster.finish(1)  # into the folder that both share

    cluster.on_ask = at(4, away)
    result = runner(cluster, lost_after_s=60, wait_s=600).run(trial(cluster))
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"])


def test_what_ended_while_no_flow_looked_is_taken_and_what_was_lost_is_run_again(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "RUNNING")
    cluster.jobs.clear()  # the head was restarted
    cluster.on_ask = lambda cluster: cluster.finish(2) if cluster.jobs.get(f"{KEY}-a2") == "RUNNING" else None
    result = runner(cluster, retries=0).run(made)  # the lost attempt costs no retry
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 2, [f"{KEY}-a2"])


def test_a_job_that_ray_has_not_started_is_no_hang(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "PENDING")

    def go_on(cluster: Cluster) -> None:
        if cluster.clock.passed > 1000:
            cluster.jobs[f"{KEY}-a1"] = "RUNNING"

    cluster.on_ask = go_on
    result = runner(cluster, hang_timeout_s=100).run(made)
    assert (result.outcome, result.reason) == (Outcome.HANG, "no progress for 100 s before its first step")
    assert 1100 < cluster.clock.passed <= 1101


def test_a_job_that_ray_does_not_start_in_time_is_taken_back_and_tried_again(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "PENDING")
    cluster.start_timeout_s = 300
    cluster.on_ask = lambda cluster: cluster.finish(2) if cluster.jobs.get(f"{KEY}-a2") == "RUNNING" else None
    result = runner(cluster, retries=1, hang_timeout_s=100).run(made)
    assert (result.outcome, result.attempt, cluster.jobs[f"{KEY}-a1"]) == (Outcome.OK, 2, "STOPPED")
    assert 300 < cluster.clock.passed <= 302
    cluster.on_ask = lambda cluster: None


def test_storage_that_is_away_longer_than_a_pool_may_be_loses_nothing(cluster: Cluster) -> None:
    told = Told()

    def away(cluster: Cluster) -> None:
        cluster.storage_down = LaunchError("storage s3://b does not answer")
        cluster.on_ask = back

    def back(cluster: Cluster) -> None:
        if cluster.jobs[f"{KEY}-a1"] == "RUNNING":
            cluster.jobs[f"{KEY}-a1"] = "SUCCEEDED"  # it ended meanwhile, and its result is not to be had yet
        if cluster.clock.passed > 500:
            cluster.storage_down = None
            cluster.finish(1)

    cluster.on_ask = at(4, away)
    result = runner(cluster, told, wait_s=600, lost_after_s=60, hang_timeout_s=100).run(trial(cluster))
    assert cluster.clock.passed > 500
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"])
    assert [problem for problem, _ in told.said] == ["storage s3://b does not answer", None]


def test_a_pool_that_dies_under_a_trial(cluster: Cluster) -> None:
    def die(cluster: Cluster) -> None:
        with JournalWriter(cluster.store.trial_dir(KEY) / "journal.jsonl", 1) as journal:
            journal.append("step", step=1)
        cluster.down = LaunchError("pool p does not answer")

    cluster.on_ask = at(4, die)
    result = runner(cluster, wait_s=30, retries=2).run(trial(cluster))
    assert (result.outcome, result.reason) == (Outcome.INFRA, "not started: pool p does not answer (waited 30 s for the pool)")
    assert cluster.started == [f"{KEY}-a1"]


@pytest.mark.parametrize("stopped", [True, False])
def test_a_result_that_is_there_counts_although_its_process_still_runs(cluster: Cluster, stopped: bool) -> None:
    """A sweep that is stopped just then, and a process that hangs at its end, lose nothing."""
    made = trial(cluster)
    running = runner(cluster, hang_timeout_s=1000)

    def publish_and_stay(cluster: Cluster) -> None:
        if cluster.started and not cluster.store.result(KEY):
            cluster.finish(1)
            cluster.jobs[f"{KEY}-a1"] = "RUNNING"
            if stopped:
                running.stop.set()

    cluster.on_ask = publish_and_stay
    result = running.run(made)
    assert (result.outcome, result.attempt) == (Outcome.OK, 1)
    assert cluster.jobs == {f"{KEY}-a1": "STOPPED"}


def test_an_attempt_that_another_flow_started_is_in_the_log_of_slots_too(cluster: Cluster) -> None:
    """Else an attempt that the pool refuses to start next would leave no sign that the slots were held."""
    made, begun = left_by_a_dead_flow(cluster, "RUNNING"), list[tuple[str, int]]()

    def end(cluster: Cluster) -> None:
        cluster.jobs[f"{KEY}-a1"] = "FAILED"
        if f"{KEY}-a2" in cluster.jobs:
            cluster.finish(2)

    run = replace(runner(cluster, retries=1), starting=lambda key, attempt: begun.append((key, attempt)))
    cluster.on_ask = end
    assert run.run(made).attempt == 2
    assert begun == [(KEY, 1), (KEY, 2)]
