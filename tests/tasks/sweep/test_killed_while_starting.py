"""A flow was killed while it started an attempt: the next one follows what began, and starts what did not at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cluster import launchers
from cluster.journal.journal import JournalWriter
from cluster.launchers import Launch, LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.store import SweepStore
from tasks.sweep.what_is_left import what_is_left
from tests.tasks.fake_cluster import KEY, Cluster, cluster, runner, trial
from tests.tasks.plan_support import make_plan

__all__ = ["cluster"]  # a fixture

BUSY = "other processes used 38 % of the CPU (limit 5 %)"


def dies(start: Callable[[Trial, Path, int], Launch], began: bool, made: Trial, folder: Path, attempt: int) -> Launch:
    """In place of a launcher's `start`, which the flow does not survive."""
    if began:
        start(made, folder, attempt)
    raise KeyboardInterrupt


def killed(cluster: Cluster, *, began: bool) -> Trial:
    """Its flow died in its next start; whether the pool had got it."""
    made, start = trial(cluster), cluster.start
    cluster.start = partial(dies, start, began)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        runner(cluster, disturbed=1).run(made)
    cluster.start = start  # type: ignore[method-assign]
    cluster.started, cluster.calls, cluster.asked = [], [], 0
    return made


def launch(cluster: Cluster) -> Launch:
    found = launchers.load(cluster.store.trial_dir(KEY))
    assert found is not None
    return found


def ends(cluster: Cluster, attempt: int, outcome: Outcome = Outcome.OK) -> None:
    """The attempt does, when it is next asked about."""
    cluster.on_ask = lambda cluster: cluster.finish(attempt, outcome) if cluster.jobs.get(f"{KEY}-a{attempt}") == "RUNNING" else None


def test_what_began_is_followed(cluster: Cluster) -> None:
    made = killed(cluster, began=True)
    assert launch(cluster).starting and what_is_left(cluster.store, make_plan([made])).begun == [made]
    ends(cluster, 1)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])
    assert launch(cluster) == Launch(launcher="ray_job", key=KEY, attempt=1, id=f"{KEY}-a1")


def test_what_began_and_was_lost_meanwhile_has_its_number(cluster: Cluster) -> None:
    """By its journal, where its pool knows it no more: its number is taken."""
    made = killed(cluster, began=True)
    with JournalWriter(cluster.store.trial_dir(KEY) / "journal.jsonl", 1, trial=KEY):
        pass
    cluster.jobs.clear()
    ends(cluster, 2)
    result = runner(cluster, retries=0).run(made)
    assert (result.attempt, cluster.started) == (2, [f"{KEY}-a2"])


def test_what_began_and_is_only_on_the_storage_has_its_number_and_counts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pool's head was restarted before anything of it came here: it is not started again, and what it measured is taken."""
    made = killed(cluster, began=True)
    cluster.jobs.clear()
    monkeypatch.setattr(cluster, "find_started", lambda launch: launch.model_copy(update={"starting": False}))
    cluster.on_ask = lambda cluster: cluster.finish(1) if cluster.calls[-1] == "fetch last" else None
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


@pytest.mark.parametrize("lost", [True, False])
def test_a_start_whose_reply_was_lost_is_looked_for_before_it_is_asked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """`lost`: its head was restarted meanwhile and knows the job no more; the storage has what it wrote."""
    start, made = cluster.start, trial(cluster)

    def reply_lost(made: Trial, folder: Path, attempt: int) -> Launch:
        monkeypatch.setattr(cluster, "start", start)
        start(made, folder, attempt)
        if lost:
            cluster.jobs.clear()
        raise LaunchError("no answer")

    monkeypatch.setattr(cluster, "start", reply_lost)
    monkeypatch.setattr(cluster, "find_started", lambda launch: launch.model_copy(update={"starting": False}))
    cluster.on_ask = lambda cluster: cluster.finish(1) if cluster.calls[-1] == ("fetch last" if lost else "status") else None
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started, cluster.calls.count("start")) == (Outcome.OK, 1, [f"{KEY}-a1"], 1)
    assert not launch(cluster).starting


@pytest.mark.parametrize("before", [None, 1])
def test_a_start_whose_reply_was_lost_is_looked_for_in_the_journal_where_the_nodes_share_its_folder(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, before: int | None
) -> None:
    """Its head was restarted and knows it no more, and there is no storage to ask. `before`: an attempt that is over, which is another."""
    start, made, number = cluster.start, trial(cluster), 1 if before is None else 2
    folder = cluster.store.trial_dir(KEY)
    if before is not None:
        with JournalWriter(folder / "journal.jsonl", before, trial=KEY):
            pass
        launchers.save(Launch(launcher="ray_job", key=KEY, attempt=before, id=f"{KEY}-a{before}"), folder)
        cluster.finish(before, Outcome.INFRA, "worker lost")

    def reply_lost(made: Trial, folder: Path, attempt: int) -> Launch:
        monkeypatch.setattr(cluster, "start", start)
        start(made, folder, attempt)
        with JournalWriter(folder / "journal.jsonl", attempt, trial=KEY):
            pass
        cluster.jobs.clear()
        raise LaunchError("no answer")

    monkeypatch.setattr(cluster, "start", reply_lost)
    cluster.on_ask = lambda cluster: cluster.finish(number) if cluster.started and cluster.calls[-1] == "fetch last" else None
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, number, [f"{KEY}-a{number}"])
    assert not launch(cluster).starting


def test_a_start_that_came_to_nothing_is_asked_for_again_although_an_earlier_attempt_has_a_journal(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, made, folder = cluster.start, trial(cluster), cluster.store.trial_dir(KEY)
    with JournalWriter(folder / "journal.jsonl", 1, trial=KEY):
        pass
    launchers.save(Launch(launcher="ray_job", key=KEY, attempt=1, id=f"{KEY}-a1"), folder)
    cluster.finish(1, Outcome.INFRA, "worker lost")
    failures = iter([LaunchError("no answer"), LaunchError("no answer")])

    def down_at_first(made: Trial, folder: Path, attempt: int) -> Launch:
        for error in failures:
            raise error
        return start(made, folder, attempt)

    monkeypatch.setattr(cluster, "start", down_at_first)
    ends(cluster, 2)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 2, [f"{KEY}-a2"])


def test_what_an_earlier_attempt_left_is_not_taken_for_one_that_is_about_to_start(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an embedded pool, whose processes have the trial's mark and no attempt's: the flow is killed before it starts anything."""
    cluster.jobs[f"{KEY}-a1"] = "RUNNING"
    found = lambda launch: launch.model_copy(update={"starting": False}) if "RUNNING" in cluster.jobs.values() else None  # noqa: E731
    monkeypatch.setattr(cluster, "find_started", found)
    monkeypatch.setattr(cluster, "end_earlier", lambda made: cluster.jobs.clear())
    save = launchers.save

    def dies(launch: Launch, folder: Path) -> None:
        save(launch, folder)
        raise KeyboardInterrupt

    made = trial(cluster)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(launchers, "save", dies)
        runner(cluster).run(made)
    assert launch(cluster).starting and launchers.find(made, cluster.store.trial_dir(KEY), lambda: cluster) is None


def test_what_did_not_begin_starts_at_once_under_the_same_number(cluster: Cluster) -> None:
    """The job's id is made of it: where its submission comes late after all, there is one job."""
    made = killed(cluster, began=False)
    ends(cluster, 1)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"])
    assert cluster.clock.passed < 1 and not launch(cluster).starting


@pytest.mark.parametrize("began", [True, False])
def test_a_disturbed_trial_that_was_to_be_measured_again_is(cluster: Cluster, began: bool) -> None:
    cluster.on_ask = lambda cluster: cluster.finish(1, Outcome.OK, BUSY) if cluster.jobs.get(f"{KEY}-a1") == "RUNNING" else None
    cluster.jobs[f"{KEY}-a1"] = "RUNNING"
    launchers.save(Launch(launcher="ray_job", key=KEY, attempt=1, id=f"{KEY}-a1"), cluster.store.trial_dir(trial(cluster).key))
    made = killed(cluster, began=began)
    disturbed = cluster.store.result(KEY)
    assert disturbed is not None and (launch(cluster).attempt, launch(cluster).replaces) == (2, disturbed)
    assert what_is_left(cluster.store, make_plan([made])).begun == [made]
    ends(cluster, 2, Outcome.CRASHED)
    result = runner(cluster, retries=0).run(made)
    assert (result, cluster.started) == (disturbed, [] if began else [f"{KEY}-a2"]), "what crashed leaves the measurement"
    assert what_is_left(cluster.store, make_plan([made])).done == [(made, disturbed)]


def test_what_is_measured_again_is_known_to_be_once_it_runs(cluster: Cluster) -> None:
    """Its flow is killed after the start: the disturbed measurement stays unless the attempt comes to one."""

    def dies(cluster: Cluster) -> None:
        if cluster.started == [f"{KEY}-a1"] and cluster.jobs[f"{KEY}-a1"] == "RUNNING":
            cluster.finish(1, Outcome.OK, BUSY)
        elif len(cluster.started) == 2 and cluster.calls[-1] == "status":
            raise KeyboardInterrupt

    cluster.on_ask = dies
    with pytest.raises(KeyboardInterrupt):
        runner(cluster, disturbed=1).run(trial(cluster))
    kept = launch(cluster).replaces
    assert not launch(cluster).starting and kept is not None and (kept.attempt, kept.disturbed) == (1, BUSY)


def test_a_pool_that_does_not_answer_is_waited_for(cluster: Cluster) -> None:
    made = killed(cluster, began=True)
    cluster.down = LaunchError("no answer")

    def answers(cluster: Cluster) -> None:
        if cluster.clock.passed >= 6.0:
            cluster.down = None
            ends(cluster, 1)

    cluster.on_ask = answers
    run = replace(runner(cluster, retries=0, wait_s=60.0), without_slots=lambda: pytest.fail("it may run in them"))
    result = run.run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_a_pool_that_answers_no_more_leaves_it_to_the_next_flow(cluster: Cluster) -> None:
    made = killed(cluster, began=True)
    cluster.down = LaunchError("no answer")
    result = runner(cluster, retries=0, wait_s=5.0).run(made)
    assert (result.outcome, result.attempt, result.reason) == (Outcome.INFRA, 1, "not started: no answer (waited 5 s for the pool)")
    cluster.down = None
    assert what_is_left(cluster.store, make_plan([made])).begun == [made]
    ends(cluster, 1)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_what_a_stop_did_not_reach_is_ended_by_the_next_flow(cluster: Cluster) -> None:
    """The sweep was stopped while the pool did not answer: whether the attempt began is found out once it does."""
    made = killed(cluster, began=True)
    cluster.down, run = LaunchError("no answer"), runner(cluster)
    run.stop.set()
    assert run.run(made).outcome is Outcome.CANCELLED and launch(cluster).starting
    cluster.down = None
    ends(cluster, 2)
    assert runner(cluster, retries=0).run(made).attempt == 2
    assert (cluster.jobs[f"{KEY}-a1"], cluster.started) == ("STOPPED", [f"{KEY}-a2"])


def test_what_began_is_found_also_where_its_journal_is_damaged(cluster: Cluster) -> None:
    """So a stop ends it: its pool knows of it."""
    made, folder = killed(cluster, began=True), cluster.store.trial_dir(KEY)
    (folder / "journal.jsonl").write_text("{}\n{}\n")
    found = launchers.find(made, folder, lambda: cluster)
    assert found == launch(cluster) and (found.attempt, found.starting) == (1, False)


def test_a_sweep_that_is_stopped_ends_what_began(cluster: Cluster) -> None:
    made = killed(cluster, began=True)
    run = runner(cluster, retries=0)
    run.stop.set()
    assert run.run(made).outcome is Outcome.CANCELLED
    assert cluster.jobs == {f"{KEY}-a1": "STOPPED"} and cluster.started == []


@pytest.mark.parametrize(("outcome", "started"), [(Outcome.OK, []), (Outcome.CRASHED, []), (Outcome.INFRA, [f"{KEY}-a2"])])
def test_what_a_flow_gave_up_and_ended_well_meanwhile_is_taken_from_the_storage(
    cluster: Cluster, outcome: Outcome, started: list[str]
) -> None:
    """Its pool did not answer any more; by now it does, and the job is over. What it measured is not measured again."""
    made = trial(cluster)
    cluster.finish(1, Outcome.INFRA, "worker lost: no answer")
    launchers.save(Launch(launcher="ray_job", key=KEY, attempt=1, id=f"{KEY}-a1"), cluster.store.trial_dir(KEY))

    def on_storage(cluster: Cluster) -> None:
        if cluster.calls[-1] == "fetch last" and not cluster.started:
            cluster.finish(1, outcome)
        elif cluster.started and cluster.jobs[cluster.started[0]] == "RUNNING":
            cluster.finish(2)

    cluster.on_ask = on_storage
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK if started else outcome, 2 if started else 1, started)


@pytest.mark.parametrize("ended", [Outcome.CANCELLED, Outcome.INFRA])
def test_what_an_attempt_was_that_did_not_begin_is_not_taken_for_the_end_of_the_one_that_does(cluster: Cluster, ended: Outcome) -> None:
    """It has the same number, and its flow is killed while it runs: it is followed and not ended, by a stop too."""
    made, run = trial(cluster), runner(cluster, retries=0, wait_s=5.0)
    if ended is Outcome.CANCELLED:
        run.stop.set()
    else:
        cluster.down = LaunchError("no answer")
    assert (run.run(made).outcome, run.run(made).attempt) == (ended, 1)
    cluster.down = None

    def dies(cluster: Cluster) -> None:
        if cluster.calls[-1] == "status":
            raise KeyboardInterrupt

    cluster.on_ask = dies
    with pytest.raises(KeyboardInterrupt):
        runner(cluster, retries=0).run(made)
    assert cluster.started == [f"{KEY}-a1"] and cluster.store.result(KEY) is None
    assert what_is_left(cluster.store, make_plan([made])).begun == [made]
    ends(cluster, 1)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"])


def test_a_disturbed_measurement_stays_while_the_next_attempt_is_not_started(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the flow is killed at once: that of the attempt which never was is not written over it."""
    saved, save = list[TrialResult](), SweepStore.save_result
    monkeypatch.setattr(SweepStore, "save_result", lambda store, result: (saved.append(result), save(store, result))[1])

    def once(cluster: Cluster) -> None:
        if cluster.jobs.get(f"{KEY}-a1") == "RUNNING":
            cluster.finish(1, Outcome.OK, BUSY)
        elif cluster.calls[-1] == "start" and cluster.started:
            cluster.down = LaunchError("no answer")

    cluster.on_ask = once
    result = runner(cluster, disturbed=1, wait_s=5.0).run(trial(cluster))
    assert (result.attempt, result.disturbed) == (1, BUSY)
    assert saved and all(one == result for one in saved), saved


def test_a_start_that_a_pool_refuses_takes_no_number(cluster: Cluster) -> None:
    made = trial(cluster)
    cluster.down = LaunchError("no answer")
    for _ in range(2):
        assert runner(cluster, retries=0, wait_s=5.0).run(made).attempt == 1
    cluster.down = None
    cluster.finish_all(Outcome.OK)
    assert (runner(cluster, retries=0).run(made).attempt, cluster.started) == (1, [f"{KEY}-a1"])


def test_a_trial_whose_folder_was_moved_away_is_measured_again_and_not_taken_from_its_old_job(cluster: Cluster) -> None:
    cluster.finish_all(Outcome.OK)
    assert runner(cluster, retries=0).run(trial(cluster)).attempt == 1
    folder = cluster.store.trial_dir(KEY)
    folder.rename(folder.parent / "moved")
    assert (runner(cluster, retries=0).run(trial(cluster)).attempt, cluster.started) == (2, [f"{KEY}-a1", f"{KEY}-a2"])


def test_a_pool_that_cannot_tell_which_number_is_free_is_waited_for_as_one_that_starts_nothing(cluster: Cluster) -> None:
    free = cluster.free_number

    def down_at_first(made: Trial, folder: Path, attempt: int) -> int:
        if cluster.clock.passed < 6.0:
            raise LaunchError("no answer")
        return free(made, folder, attempt)

    cluster.free_number = down_at_first  # type: ignore[method-assign]
    made, waits = trial(cluster), list[float]()

    def without_slots() -> AbstractContextManager[None]:
        waits.append(cluster.clock.passed)
        return nullcontext()

    result = runner(cluster, retries=0, wait_s=2.0).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.INFRA, 1, [])
    began = cluster.clock.passed
    cluster.finish_all(Outcome.OK)
    run = replace(runner(cluster, retries=0, wait_s=60.0), without_slots=without_slots)
    assert (run.run(made).attempt, cluster.started) == (1, [f"{KEY}-a1"])
    assert waits == [began] and began < 6.0, "nothing of it may run, so others have its slots"
