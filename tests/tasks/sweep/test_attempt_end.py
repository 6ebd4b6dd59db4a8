"""What an attempt ended as: decided on made-up ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.disk_errors import FULL, LOST, DiskError
from cluster.journal.journal import Journal
from cluster.journal.replication import STORAGE_LOST
from cluster.launchers import Status
from experiments.trial import Outcome, TrialResult
from tasks.sweep.attempt_end import AttemptEnd, flow_result, judge
from tests.contracts import make_trial

KEY = "dddd000000000002"
NOW = 1_700_000_100.0


def published(outcome: Outcome) -> TrialResult:
    reason = None if outcome is Outcome.OK else "its worker's word"
    return TrialResult(key=KEY, attempt=2, outcome=outcome, reason=reason, started_at=1.0, finished_at=2.0)


def exited(code: int | None = 0, message: str | None = None) -> Status:
    return Status(running=False, exit_code=code, message=message)


@pytest.fixture
def ended(tmp_path: Path) -> Any:
    """Outcome and reason of an end."""
    trial = make_trial(tmp_path, KEY)

    def judged(end: AttemptEnd, journal: Journal | None = None) -> tuple[Outcome, str | None]:
        result = judge(end, trial, 2, journal or Journal(), NOW)
        assert (result.key, result.attempt) == (KEY, 2)
        return result.outcome, result.reason

    return judged


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (exited(1, "exit status 1"), Outcome.CRASHED, "exit status 1"),
        (exited(127, "exit status 127"), Outcome.CRASHED, "exit status 127"),
        (exited(128, "exit status 128"), Outcome.INFRA, "worker lost: exit status 128"),
        (exited(137, "exit status 137"), Outcome.INFRA, "worker lost: exit status 137"),
        (exited(STORAGE_LOST, "exit status 75"), Outcome.INFRA, "storage_lost: exit status 75"),
        (exited(-9, "killed by SIGKILL"), Outcome.INFRA, "worker lost: killed by SIGKILL"),
        (exited(0), Outcome.INFRA, "worker lost: it ended without a result"),
        (exited(None), Outcome.INFRA, "worker lost: it ended without a result"),
        (exited(1, "node running low on memory"), Outcome.INFRA, "host_oom: node running low on memory"),
        (exited(STORAGE_LOST, "node was preempted"), Outcome.INFRA, "preempted: node was preempted"),
        (exited(None, "node is drained"), Outcome.INFRA, "preempted: node is drained"),
    ],
)
def test_a_process_that_published_nothing_is_judged_by_its_exit(ended: Any, status: Status, outcome: Outcome, reason: str) -> None:
    assert ended(AttemptEnd(exited=status)) == (outcome, reason)


def test_rays_words_about_a_pool_that_is_away_are_not_about_the_trial(ended: Any) -> None:
    assert ended(AttemptEnd(unreachable="pool p is drained")) == (Outcome.INFRA, "worker lost: pool p is drained")


def test_a_job_for_which_there_was_no_room_is_infra_unless_its_sweep_was_stopped(ended: Any) -> None:
    assert ended(AttemptEnd(unplaced="no node had room")) == (Outcome.INFRA, "no node had room")
    assert ended(AttemptEnd(unplaced="no node had room", stopped="by hand")) == (Outcome.CANCELLED, "by hand")


@pytest.mark.parametrize(("steps", "at"), [([], "before its first step"), ([{"step": 3}, {"step": 4}], "after step 4")])
def test_a_trial_that_makes_no_progress_hangs_and_says_where(ended: Any, steps: list[dict[str, int]], at: str) -> None:
    assert ended(AttemptEnd(stalled_s=600.0), Journal(steps=steps)) == (Outcome.HANG, f"no progress for 600 s {at}")


@pytest.mark.parametrize("end", [{"exited": exited(1, "x")}, {"unreachable": "x"}, {"stalled_s": 1.0}])
@pytest.mark.parametrize("outcome", Outcome)
def test_what_its_worker_published_counts_before_how_it_ended(ended: Any, end: dict[str, Any], outcome: Outcome) -> None:
    said = published(outcome)
    assert ended(AttemptEnd(**end, worker_result=said)) == (said.outcome, said.reason)


@pytest.mark.parametrize("end", [{}, {"exited": exited(1, "x")}, {"unreachable": "x"}])
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_a_stop_explains_every_end_that_says_nothing_of_the_trial(ended: Any, end: dict[str, Any], outcome: Outcome | None) -> None:
    """Also a crash; not what was measured, and not what a worker says of its own cancellation once it is over."""
    found = ended(AttemptEnd(**end, stopped="enough", worker_result=published(outcome) if outcome else None))
    kept = outcome not in (None, Outcome.CRASHED, Outcome.INFRA) and not (outcome is Outcome.CANCELLED and not end)
    assert found == ((outcome, published(outcome).reason) if kept and outcome else (Outcome.CANCELLED, "enough"))


def test_a_result_made_here_has_what_the_journal_knows(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, KEY)
    journal = Journal(attempt=2, started_at=NOW - 60, environment={"host": "h", "emulated": True})
    result = flow_result(trial, 2, Outcome.INFRA, "x", NOW, journal)
    assert (result.started_at, result.finished_at, result.emulated) == (NOW - 60, NOW, True)
    assert (result.environment, result.summary, result.detail) == ({"host": "h", "emulated": True}, {}, None)
    bare = flow_result(trial, 2, Outcome.INFRA, "x", NOW)
    assert (bare.started_at, bare.finished_at, bare.emulated, bare.environment) == (NOW, NOW, trial.emulated, {})
    assert flow_result(trial.model_copy(update={"emulated": True}), 2, Outcome.INFRA, "x", NOW).emulated is True


MOUNT = "mount it for writing; the kernel's log (dmesg) says what happened to it"


@pytest.mark.parametrize(
    ("disk", "what", "remedy"),
    [(FULL, "disk_full: no space left", "free some"), (LOST, "disk_lost: nothing can be written any more", MOUNT)],
)
def test_a_disk_is_named_with_the_folder_that_is_on_it(ended: Any, disk: DiskError, what: str, remedy: str) -> None:
    end = AttemptEnd(exited=exited(disk.exit_status, f"exit status {disk.exit_status}"), folder="/runs/x")
    text = f"{what} on the disk of /runs/x: the trial's result could not be written; {remedy}"
    assert ended(end) == (Outcome.INFRA, text)
    assert ended(AttemptEnd(exited=exited(disk.exit_status)))[1] == text.replace(" of /runs/x", ", where the trial writes,")
