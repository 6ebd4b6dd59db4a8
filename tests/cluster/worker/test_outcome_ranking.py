"""Which of several exceptions explains the others, and what each kind of infrastructure failure looks like."""

from __future__ import annotations

import errno
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.train import WorkerGroupError

from cluster.worker.outcome import REASON_LIMIT, Termination, TrialEnded, causes, classify, line
from experiments.trial import Outcome

RANKING = ["cancelled", "does_not_fit", "unsupported", "diverged", "hang", "infra", "crashed"]  # what comes first explains what follows


def of_ray(name: str, module: str = "ray.exceptions", **attributes: Any) -> BaseException:
    """An exception that this version of Ray need not have."""
    error: BaseException = type(name, (Exception,), {"__module__": module, **attributes})("gone")
    return error


@pytest.mark.parametrize(("one", "other"), list(permutations(RANKING, 2)))
def test_of_two_ranks_that_ended_differently_one_explains_the_other(one: str, other: str) -> None:
    best = min(one, other, key=RANKING.index)
    ending = classify(WorkerGroupError("x", {0: TrialEnded(one, f"rank 0: {one}"), 1: TrialEnded(other, f"rank 1: {other}")}))
    assert (ending.outcome, ending.reason) == (Outcome(best), f"rank {[one, other].index(best)}: {best}")


def test_every_ending_but_ok_has_its_place() -> None:
    assert {str(outcome) for outcome in Outcome} - {"ok"} == set(RANKING)


def test_where_all_ended_alike_the_lowest_rank_speaks() -> None:
    failures = {rank: TrialEnded("infra", f"worker_lost: {rank}") for rank in (2, 0, 1)}
    assert classify(WorkerGroupError("x", failures)).reason == "worker_lost: 0"


@pytest.mark.parametrize("preempted", [0, 1, 2])
def test_a_node_that_was_taken_back_explains_what_was_lost_with_it(preempted: int) -> None:
    failures: dict[int, Exception] = {rank: ActorDiedError() for rank in range(3)}
    failures[preempted] = TrialEnded("infra", "preempted: spot")
    assert classify(WorkerGroupError("x", failures)).reason == "preempted: spot"


def test_a_bug_is_not_made_up_for_by_a_preemption_of_lower_rank() -> None:
    ending = classify(WorkerGroupError("x", {0: TrialEnded("infra", "preempted: x"), 1: TrialEnded("does_not_fit", "memory")}))
    assert ending.outcome is Outcome.DOES_NOT_FIT


# --- infrastructure


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_full_quota(number: int) -> None:
    ending = classify(OSError(number, "cannot write"))
    assert ending.outcome is Outcome.INFRA and str(ending.reason).startswith("disk_full: ")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN])
def test_a_disk_that_can_no_longer_be_written(number: int) -> None:
    ending = classify(OSError(number, "cannot write", "/own/x"), [Path("/own")])
    assert ending.outcome is Outcome.INFRA and str(ending.reason).startswith("disk_lost: ")
    ending = classify(OSError(number, "cannot read", "/data/x"), [Path("/own")])
    assert ending.outcome is Outcome.INFRA and str(ending.reason).startswith("data_lost: ")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EISDIR])
def test_other_errors_of_files_are_the_trials_own(number: int) -> None:
    assert classify(OSError(number, "cannot write")).outcome is Outcome.CRASHED


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (of_ray("OutOfDiskError"), "disk_full"),
        (of_ray("OutOfMemoryError"), "host_oom"),
        (of_ray("PreemptionError"), "preempted"),
        (of_ray("ActorDiedError", preempted=True), "preempted"),
        (of_ray("ActorDiedError", preempted=False), "worker_lost"),
        (of_ray("StorageError", module="cluster.journal.object_store"), "storage_lost"),
        *(
            (of_ray(name), "worker_lost")
            for name in (
                "ActorDiedError",
                "ActorUnavailableError",
                "LocalRayletDiedError",
                "NodeDiedError",
                "RayActorError",
                "RaySystemError",
                "WorkerCrashedError",
                "WorkerGroupStartupFailedError",
                "WorkerGroupStartupTimeoutError",
                "WorkerHealthCheckFailedError",
                "WorkerHealthCheckTimeoutError",
            )
        ),
        (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), "worker_lost"),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Bus error."), "worker_lost"),
        (MemoryError("malloc"), "host_oom"),
    ],
)
def test_kinds_of_infrastructure_failure(error: BaseException, kind: str) -> None:
    ending = classify(error)
    assert ending.outcome is Outcome.INFRA
    assert ending.reason == f"{kind}: {error}"


@pytest.mark.parametrize("name", ["NodeDiedError", "OutOfDiskError", "OutOfMemoryError", "PreemptionError"])
def test_an_exception_named_like_rays_is_not_rays(name: str) -> None:
    assert classify(of_ray(name, module="somewhere")).outcome is Outcome.CRASHED


def test_the_text_of_a_killed_loader_counts_only_from_torch() -> None:
    assert classify(ValueError("DataLoader worker (pid 12) is killed by signal: Killed.")).outcome is Outcome.CRASHED


# --- device memory


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("CUDA out of memory"), Outcome.DOES_NOT_FIT),
        (RuntimeError("cuda error: OUT OF MEMORY"), Outcome.DOES_NOT_FIT),
        (ValueError("CUDA out of memory"), Outcome.CRASHED),
        (RuntimeError("out of tune"), Outcome.CRASHED),
        (of_ray("OutOfMemoryError", module="torch.cuda"), Outcome.DOES_NOT_FIT),
    ],
)
def test_what_is_out_of_device_memory(error: BaseException, outcome: Outcome) -> None:
    assert classify(error).outcome is outcome


# --- what a healthy rank says when another has gone


@pytest.mark.parametrize(
    "text",
    [
        "Connection closed by peer [127.0.0.1]:4",
        "connection reset by peer",
        "Connection refused",
        "ncclRemoteError: a call failed",
        "ncclSystemError",
        "[gloo/transport/tcp/pair.cc:1] pair closed",
        "[gloo/transport/tcp/pair.cc:1] reset",
    ],
)
def test_a_closed_connection_is_named_only_where_nobody_says_more(text: str) -> None:
    peer = RuntimeError(text)
    assert classify(WorkerGroupError("x", {0: ValueError("a bug"), 1: peer})).reason == "ValueError: a bug"
    assert str(classify(peer).reason).endswith(f": {text}")


def test_the_innermost_cause_is_named() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = ValueError("a bug")
    assert classify(outer).reason == "ValueError: a bug"
    assert [str(error) for error in causes(outer)] == ["outer", "a bug"]


@pytest.mark.parametrize("name", ["controller_failure", "health_check_failure", "_base_exc", "cause"])
def test_what_ray_wraps_is_found(name: str) -> None:
    outer = RuntimeError("outer")
    setattr(outer, name, TrialEnded("diverged", "nan"))
    assert classify(outer).outcome is Outcome.DIVERGED
    setattr(outer, name, "text")
    assert classify(outer).outcome is Outcome.CRASHED


# --- reasons


@pytest.mark.parametrize("length", [1, REASON_LIMIT - 1, REASON_LIMIT])
def test_a_reason_that_fits_is_whole(length: int) -> None:
    assert line("x" * length) == "x" * length


def test_a_longer_one_is_cut_and_shows_it() -> None:
    assert line("x" * (REASON_LIMIT + 1)) == "x" * (REASON_LIMIT - 1) + "…"
    assert line(" a\n b\t c ") == "a b c"


def test_an_exception_without_a_text_is_named_by_its_type() -> None:
    assert classify(MemoryError()).reason == "host_oom: MemoryError"


def test_the_detail_is_the_traceback_of_all_that_was_raised() -> None:
    try:
        raise ValueError("a bug")
    except ValueError as error:
        ending = classify(error)
    assert ending == Termination(Outcome.CRASHED, "ValueError: a bug", ending.detail)
    assert ending.detail is not None and ending.detail.startswith("Traceback (most recent call last)") and "a bug" in ending.detail
