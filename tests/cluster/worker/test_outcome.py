"""Exceptions, on this rank and through Ray's wrappings, to typed outcomes."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ray.exceptions import ActorDiedError
from ray.exceptions import OutOfMemoryError as HostMemoryError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError

from cluster.journal.errors import JournalInUse, Writer
from cluster.worker.outcome import REASON_LIMIT, Cancelled, Diverged, TrialEnded, classify
from experiments.components.workload import DataError, Unsupported
from experiments.trial import Outcome

LOST = WorkerHealthCheckFailedError("worker 1 is gone", ActorDiedError())
PEER = RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4")


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), Outcome.DOES_NOT_FIT, "Tried to allocate"),
        (RuntimeError("CUDA error: out of memory"), Outcome.DOES_NOT_FIT, "out of memory"),
        (Diverged(5, float("nan")), Outcome.DIVERGED, "nan at step 5"),
        (Unsupported("precision fp16: a CPU"), Outcome.UNSUPPORTED, "fp16"),
        (OSError(errno.ENOSPC, "No space left on device"), Outcome.INFRA, "disk_full: [Errno 28] No space left on device; free some"),
        (
            OSError(errno.EROFS, "Read-only", "/a/b"),
            Outcome.INFRA,
            "disk_lost: [Errno 30] Read-only: '/a/b'; mount it for writing; the kernel",
        ),
        (OSError(errno.EIO, "no", "/data/c"), Outcome.INFRA, "data_lost: [Errno 5] no: '/data/c'; it is not in the trial's own folder"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/a"), Outcome.CRASHED, "FileNotFoundError: "),
        (
            JournalInUse.after(30.0, Path("/a/j"), Writer(7, "n", 1)),
            Outcome.INFRA,
            "earlier_attempt: /a/j: process 7 on n (attempt 1) or a child",
        ),
        (MemoryError(), Outcome.INFRA, "host_oom: "),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), Outcome.INFRA, "worker_lost: "),
        (Cancelled("told to end"), Outcome.CANCELLED, "told to end"),
        (KeyboardInterrupt(), Outcome.CANCELLED, "KeyboardInterrupt"),
        (TrialEnded("diverged", "rank 1: nan"), Outcome.DIVERGED, "rank 1: nan"),
        (DataError("train.parquet row 3: ..."), Outcome.CRASHED, "DataError: train.parquet row 3"),
        (ValueError("a bug"), Outcome.CRASHED, "ValueError: a bug"),
        (WorkerGroupError("x", {1: LOST}), Outcome.INFRA, "worker_lost: "),
        (ControllerError(HostMemoryError("node low on memory")), Outcome.INFRA, "host_oom: "),
    ],
)
def test_what_an_exception_means(error: BaseException, outcome: Outcome, reason: str) -> None:
    ending = classify(error, [Path("/a")])
    assert ending.outcome is outcome
    assert ending.reason is not None and reason in ending.reason
    assert ending.detail is not None and type(error).__name__ in ending.detail


def test_the_cause_on_a_rank_is_found_through_ray() -> None:
    wrapped = UserExceptionWithTraceback(torch.OutOfMemoryError("CUDA out of memory"), traceback_str="Traceback ...")
    assert classify(WorkerGroupError("x", {0: PEER, 1: wrapped})).outcome is Outcome.DOES_NOT_FIT


def test_a_lost_worker_explains_the_ranks_that_it_left_behind() -> None:
    assert classify(WorkerGroupError("x", {0: PEER, 1: LOST})).outcome is Outcome.INFRA


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_bug_on_one_rank_is_named_rather_than_the_connection_it_closed(rank: int) -> None:
    ending = classify(WorkerGroupError("x", {**dict.fromkeys(range(3), PEER), rank: ValueError("a bug")}))
    assert ending.outcome is Outcome.CRASHED
    assert ending.reason == "ValueError: a bug"


GONE = [
    str(PEER),
    "[../gloo/transport/tcp/pair.cc:537]\nRead error [127.0.0.1]:4: Connection reset by peer",
    "[../gloo/transport/tcp/pair.cc:81] writev [127.0.0.1]:4: Broken pipe",
    "NCCL error: remote process exited or there was a network error, NCCL version 2.27",
    "ncclRemoteError: A call failed possibly due to a network error",
    "failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
]


@pytest.mark.parametrize("text", GONE)
def test_where_no_rank_says_more_than_that_another_has_gone_a_worker_was_lost(text: str) -> None:
    """Ray may hear of the survivor before it knows that the other one died."""
    survivor = UserExceptionWithTraceback(RuntimeError(text), traceback_str="Traceback ...")
    for error in (RuntimeError(text), WorkerGroupError("x", {0: survivor}), WorkerGroupError("x", {0: survivor, 2: survivor})):
        ending = classify(error)
        assert ending.outcome is Outcome.INFRA
        assert ending.reason == f"worker_lost: a rank lost its connection to another: {' '.join(text.split())}"


@pytest.mark.parametrize(
    "text",
    [
        "HTTPConnectionPool(host='a', port=80): Connection refused",
        "[Errno 104] Connection reset by peer",
        "Broken pipe",
        "ncclSystemError: System call (e.g. socket, malloc) failed",
    ],
)
def test_other_connections_and_a_library_that_cannot_be_used_are_no_lost_rank(text: str) -> None:
    for error in (RuntimeError(text), WorkerGroupError("x", {0: RuntimeError(text)})):
        assert classify(error).outcome is Outcome.CRASHED


def test_causes_that_point_at_each_other_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert classify(one).outcome is Outcome.CRASHED


def test_an_exception_named_like_torchs_is_not_torchs() -> None:
    impostor = type("OutOfMemoryError", (Exception,), {"__module__": "somewhere"})("disk of tapes")
    assert classify(impostor).outcome is Outcome.CRASHED


def test_reasons_are_one_short_line() -> None:
    reason = classify(ValueError("many\n\nlines " * 500)).reason
    assert reason is not None and "\n" not in reason and len(reason) == REASON_LIMIT


def test_worker_failures_that_are_no_dictionary_are_ignored() -> None:
    error = ValueError("x")
    error.worker_failures = SimpleNamespace()  # type: ignore[attr-defined]
    assert classify(error).outcome is Outcome.CRASHED
