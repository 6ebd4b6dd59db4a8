"""Start and stop the sampler (cluster/sampler) beside a trial's rank 0."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.process_marks import MARK, POOL_MARK
from cluster.python_path import environment_of
from cluster.trial_layout import DEVICE_STATE
from cluster.worker.rank_group import Ranks
from experiments.config.paths import REPOSITORY
from experiments.trial import Trial

LOCK_S = 60.0  # how long a trial waits to hear whether its clocks are locked
END_S = 10.0  # how long a trial waits for the sampler's last record; releasing clocks may take some seconds


@dataclass(frozen=True)
class Sampling:
    """What the start of the sampler found out: `facts` for the trial's environment, sentences for its journal."""

    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@contextmanager
def sampling(trial: Trial, ranks: Ranks, out: Path, attempt: int) -> Iterator[Sampling]:
    """Sample into `out` while the block runs, on rank 0; on other ranks do nothing. The file is complete when the block has ended.

    Waits only where the trial's clocks are to be locked, until they are. A sampler that cannot be started is a note: the trial goes on.
    """
    if ranks.rank != 0:
        yield Sampling()
        return
    lock, found = trial.lock_clocks_mhz, Sampling()
    if lock is not None and ranks.world_size > ranks.local_world_size:
        lock, found = None, Sampling({"locked_clocks_mhz": None}, ("clocks are not locked: the trial's devices are on several nodes",))
    command = _command(trial, ranks, out, attempt, lock)
    try:
        process = subprocess.Popen(
            command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if lock is None else subprocess.PIPE
        )
    except OSError as error:
        yield Sampling(found.facts, (*found.notes, f"the device's state is not sampled: {error}"))
        return
    try:
        yield found if lock is None else _locked(process)
    finally:
        _end(process)


def _command(trial: Trial, ranks: Ranks, out: Path, attempt: int, lock: int | None) -> list[str]:
    command = [sys.executable, "-m", "cluster.sampler.main", "--out", str(out / DEVICE_STATE), "--attempt", str(attempt)]
    command += ["--device", trial.device, "--count", str(ranks.local_world_size), "--trial", trial.key, "--worker", str(os.getpid())]
    return command + (["--emulated"] if trial.emulated else []) + (["--lock", str(lock)] if lock is not None else [])


def _environment() -> dict[str, str]:
    """This process's, without the marks of the trial's processes: the sampler is none of those that are waited for and ended with it."""
    kept = {name: value for name, value in os.environ.items() if name not in (MARK, POOL_MARK)}
    return {**kept, **environment_of(REPOSITORY, kept)}


def _locked(process: subprocess.Popen[bytes]) -> Sampling:
    """What the sampler says about the lock."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], LOCK_S)
    line = process.stdout.readline() if ready else b""
    answer = json.loads(line) if line else {"locked_clocks_mhz": None, "reason": "the sampler, which locks them, did not answer"}
    notes = (f"clocks are not locked: {answer['reason']}",) if answer["reason"] else ()
    return Sampling({"locked_clocks_mhz": answer["locked_clocks_mhz"]}, notes)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell the sampler to end, and wait for it. A byte tells it: a child of this process may hold the pipe open."""
    try:
        process.communicate(b"\n", timeout=END_S)
    except (OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
