"""Supervise several ranks on one machine without torchrun: start them, and determine how the trial ended if one fails.

torchrun sends the surviving ranks only SIGTERM. Rank 0 could then not distinguish a lost rank from a cancelled sweep.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.trial_layout import LESSON, RANKS, RESULT, TRIAL, rank_failure
from cluster.worker.forked_ranks import ForkedRank, RankEntry, can_fork, fork_rank, learn
from cluster.worker.outcome import Termination, TrialEnded, explaining
from experiments.atomic_file import atomic_write
from experiments.json_file import read_model
from experiments.trial import Outcome, Trial, TrialResult

Rank = subprocess.Popen[bytes] | ForkedRank

GRACE_S = 3.0
POLL_S = 0.02


def supervise(trial: Trial, options: argparse.Namespace, notes: list[str], entry: RankEntry) -> Termination:
    """Run one process per device until all have ended. If one fails, end the others. Raises TrialEnded unless the trial ended ok."""
    world = int(trial.parameters["devices"])
    # the ranks' store listens already, so no other process can take its port in between; it has threads, so it starts after the forks
    listener = socket.create_server(("127.0.0.1", 0))
    forks = can_fork()
    folder: Path = options.out / RANKS
    folder.mkdir(exist_ok=True)
    trial_file = folder / TRIAL
    atomic_write(trial_file, trial.model_dump_json())
    for old in folder.glob(rank_failure("*")):
        old.unlink()
    lesson = folder / LESSON
    lesson.unlink(missing_ok=True)
    arguments = ["--trial", str(trial_file), "--out", str(options.out)]
    arguments += ["--attempt", str(options.attempt), *(["--probe", options.probe] if options.probe is not None else [])]
    shared = {
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(listener.getsockname()[1]),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "SWEEPBENCH_NOTES": json.dumps(notes),
    }
    children: list[Rank] = []
    try:
        for rank in range(world):
            variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            if forks:
                children.append(fork_rank(entry, arguments, variables, listener, lesson if rank == 0 else None))
            else:
                command = [sys.executable, "-m", "cluster.worker.main", *arguments]
                children.append(subprocess.Popen(command, env={**os.environ, **variables}))
        with _store(listener):
            failures = _wait(children)
    finally:
        _end(children)
    learn(lesson)
    ending = _explain(options.out, options.attempt, failures)
    if ending.outcome is not Outcome.OK:
        raise TrialEnded(str(ending.outcome), ending.reason or "a rank failed")
    return ending


@contextmanager
def _store(listener: socket.socket) -> Iterator[None]:
    """Keep the store that the ranks join, on this socket."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    yield
    del store


def write_rank_failure(out: Path, attempt: int, rank: int, ending: Termination) -> None:
    """Write for the supervisor how a rank other than 0 ended."""
    failure = {"attempt": attempt, "outcome": str(ending.outcome), "reason": ending.reason}
    folder = out / RANKS
    folder.mkdir(exist_ok=True)
    atomic_write(folder / rank_failure(rank), json.dumps(failure))


def _wait(children: Sequence[Rank]) -> dict[int, int]:
    """Exit status by rank of the ranks that failed first; empty if all succeeded."""
    while True:
        codes = [child.poll() for child in children]
        failed = {rank: code for rank, code in enumerate(codes) if code}
        if failed or all(code == 0 for code in codes):
            return failed
        time.sleep(POLL_S)


def _end(children: Sequence[Rank]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # stuck in a collective whose peer is gone
            child.kill()
            child.wait()


def _explain(out: Path, attempt: int, failures: dict[int, int]) -> Termination:
    """The termination that explains the others, from the files of the ranks and from their exit statuses (`failures`)."""
    endings: list[Termination] = []
    for path in sorted((out / RANKS).glob(rank_failure("*"))):
        failure = json.loads(path.read_text())
        if failure["attempt"] == attempt:
            who = path.stem.replace("-", " ")
            endings.append(Termination(Outcome(failure["outcome"]), f"{who}: {failure['reason']}"))
    killed = {rank: signal.Signals(-code).name for rank, code in failures.items() if code < 0}
    endings.extend(Termination(Outcome.INFRA, f"worker_lost: rank {rank} was killed by {name}") for rank, name in killed.items())
    own = _rank_zero(out, attempt)
    if own is not None:
        endings.append(own)
    elif not endings:
        endings.append(Termination(Outcome.CRASHED, f"ranks failed without giving a reason: {failures}"))
    # a rank reports "cancelled" because another one had failed, so it explains nothing
    return explaining([ending for ending in endings if ending.outcome is not Outcome.CANCELLED] or endings)


def _rank_zero(out: Path, attempt: int) -> Termination | None:
    result = read_model(out / RESULT, TrialResult, "this process wrote it a moment ago")
    if result is None or result.attempt != attempt:
        return None
    return Termination(result.outcome, result.reason, result.detail)
