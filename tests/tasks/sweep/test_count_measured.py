"""An attempt whose process ended after all was measured: what the flow makes of it, whoever wrote a result, or nobody."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.journal import after_window
from cluster.journal.journal import read_journal
from cluster.journal.lines import Record
from cluster.launchers import Launch, LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep import begin_attempt
from tasks.sweep.count_measured import times_measured
from tests.measured_support import write_measured
from tests.tasks.fake_cluster import KEY, Cluster, at, cluster, left_by_a_dead_flow, runner, trial

__all__ = ["cluster"]  # a fixture


def lost(cluster: Cluster) -> object:
    return cluster.jobs.update({f"{KEY}-a1": "FAILED"})


def crashed(cluster: Cluster) -> object:
    return cluster.finish(1, Outcome.CRASHED, "rank 1: a bug")


@pytest.mark.parametrize(("end", "why"), [(lost, "worker lost: exit status 137"), (crashed, "rank 1: a bug")])
def test_a_lost_attempt_that_was_measured_counts_and_is_not_repeated(cluster: Cluster, end: object, why: str) -> None:
    cluster.exit_code, cluster.message = 137, "exit status 137"
    made, journal = trial(cluster), cluster.store.trial_dir(KEY) / "journal.jsonl"
    cluster.on_ask = at(3, lambda cluster: write_measured(journal, key=KEY) or end(cluster))  # type: ignore[operator]
    observed: list[tuple[int, Sequence[Record]]] = []
    result = runner(cluster, observed=observed, retries=2).run(made)
    assert (result.outcome, result.reason, result.detail, result.attempt) == (Outcome.OK, None, None, 1)
    assert result.summary["throughput"] == pytest.approx(40.0) and cluster.started == [f"{KEY}-a1"]
    assert cluster.store.result(KEY) == result and result.journal == read_journal(journal).mark
    assert read_journal(journal).notes[-1]["text"].endswith(f"after all else was measured: {why}")
    assert [record["kind"] for _, records in observed for record in records][-3:] == ["note", "end", "close"], "live feeds see it too"


def test_an_attempt_that_was_lost_before_its_window_is_repeated(cluster: Cluster) -> None:
    made, journal = trial(cluster), cluster.store.trial_dir(KEY) / "journal.jsonl"
    cluster.on_ask = at(3, lambda cluster: write_measured(journal, key=KEY, window=False) or lost(cluster))
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.summary) == (Outcome.INFRA, {})


def test_a_hang_in_the_traces_takes_no_measurement_away(cluster: Cluster) -> None:
    made, journal = trial(cluster), cluster.store.trial_dir(KEY) / "journal.jsonl"
    cluster.on_ask = at(3, lambda cluster: write_measured(journal, key=KEY))
    assert runner(cluster, retries=0, hang_timeout_s=30).run(made).outcome is Outcome.OK
    assert read_journal(journal).notes[-1]["text"].endswith("no progress for 30 s after step 4") and "stop" in cluster.calls


def test_a_resume_counts_what_was_measured_while_no_flow_looked_on(cluster: Cluster) -> None:
    made = left_by_a_dead_flow(cluster, "FAILED")
    write_measured(cluster.store.trial_dir(KEY) / "journal.jsonl", key=KEY)
    result = runner(cluster).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [])


def test_an_attempt_that_may_still_run_is_not_counted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made, journal = trial(cluster), cluster.store.trial_dir(KEY) / "journal.jsonl"
    cluster.on_ask = at(3, lambda cluster: write_measured(journal, key=KEY) or lost(cluster))

    def stop(launch: Launch, grace_s: float = 5.0) -> None:
        raise LaunchError("the pool does not answer")

    monkeypatch.setattr(cluster, "stop", stop)
    assert runner(cluster, retries=0).run(made).outcome is Outcome.INFRA
    assert not read_journal(journal).notes[1:]


def test_a_journal_that_cannot_be_completed_leaves_the_ending_and_the_log_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, journal = trial(cluster), cluster.store.trial_dir(KEY) / "journal.jsonl"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def end(cluster: Cluster) -> None:
        write_measured(journal, key=KEY)
        lost(cluster)
        monkeypatch.setattr(after_window, "JournalWriter", full)

    cluster.on_ask = at(3, end)
    assert runner(cluster, retries=0).run(made).outcome is Outcome.INFRA
    monkeypatch.undo()
    assert f"trial {made.name} was measured before it ended, and this cannot be kept: " in caplog.text
    assert "No space left" in caplog.text

    ended = cluster.store.result(KEY)
    cluster.clock.now += 3600.0
    result = runner(cluster).run(made)  # as a resume does, once the disk has room
    assert ended is not None and (result.started_at, result.finished_at) == (ended.started_at, ended.finished_at), "it took no longer"
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 1, [f"{KEY}-a1"]), "it is not measured again"
    assert cluster.store.result(KEY) == result and read_journal(journal).notes[-1]["text"].startswith("no steps were traced: ")


@pytest.mark.parametrize(("budget", "then", "counted"), [(1, Outcome.OK, 2), (1, Outcome.CRASHED, 1), (0, Outcome.OK, 1)])
def test_one_that_a_resume_counts_is_measured_again_where_it_was_disturbed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, budget: int, then: Outcome, counted: int
) -> None:
    """As one that its flow counts."""
    made = trial(cluster)
    cluster.on_ask = at(3, lambda cluster: write_measured(cluster.store.trial_dir(KEY) / "journal.jsonl", key=KEY) or lost(cluster))
    with monkeypatch.context() as first:
        first.setattr(after_window, "JournalWriter", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert runner(cluster, retries=0).run(made).outcome is Outcome.INFRA
    count = begin_attempt.count_measured

    def disturbed(result: TrialResult, trial: Trial, folder: Path) -> TrialResult:
        found = count(result, trial, folder)
        return found if found is result else found.model_copy(update={"disturbed": "other work"})

    monkeypatch.setattr(begin_attempt, "count_measured", disturbed)
    cluster.finish_all(then)
    run = runner(cluster, retries=0, disturbed=budget)
    result = run.run(made)
    assert (result.outcome, result.attempt, result.disturbed) == (Outcome.OK, counted, "other work" if counted == 1 else None)
    assert len(cluster.started) == 1 + budget and cluster.store.result(KEY) == result


@pytest.mark.parametrize(
    ("attempt", "ends", "times"),
    [
        (1, [Outcome.OK], 1),
        (2, [Outcome.OK, Outcome.OK], 2),
        (1, [Outcome.OK, Outcome.OK], 1),  # the second is a later attempt's
        (3, [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.OK], 3),
        (2, [Outcome.INFRA, Outcome.OK], 1),
        (3, [Outcome.OK, Outcome.CRASHED, Outcome.OK], 2),
        (2, [Outcome.OK, None], 2),  # its own was counted without an end: its journal could not be written
        (3, [Outcome.OK, None, Outcome.OK], 2),  # the second never came to one
        (1, [], 1),
        (4, [Outcome.OK], 2),  # its own records are gone
    ],
)
def test_a_trial_was_measured_as_often_as_attempts_up_to_its_results_ended_ok_and_that_one(
    tmp_path: Path, attempt: int, ends: list[Outcome | None], times: int
) -> None:
    for number, end in enumerate(ends, 1):
        write_measured(tmp_path / "journal.jsonl", number, end=end, key=KEY)
    assert times_measured(result_of(attempt), tmp_path) == times


def test_of_a_damaged_journal_the_result_alone_tells_that_it_was_measured(tmp_path: Path) -> None:
    for number in (1, 2):
        write_measured(tmp_path / "journal.jsonl", number, end=Outcome.OK, key=KEY)
    with open(tmp_path / "journal.jsonl", "r+b") as file:
        file.write(b"x")
    assert times_measured(result_of(2), tmp_path) == 1


def test_an_attempt_whose_end_is_told_twice_counts_once(tmp_path: Path) -> None:
    """As where it was begun twice under one number."""
    for number in (1, 1, 2):
        write_measured(tmp_path / "journal.jsonl", number, end=Outcome.OK, key=KEY)
    assert times_measured(result_of(2), tmp_path) == 2


def result_of(attempt: int) -> TrialResult:
    return TrialResult(key=KEY, attempt=attempt, outcome=Outcome.OK, started_at=1.0, finished_at=2.0)
