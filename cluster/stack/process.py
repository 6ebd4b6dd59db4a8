"""Start, recognise and stop the stack's processes.

A component's record holds its pid and creation time, so a stale file or a reused pid is never mistaken for it. All its child processes
inherit a mark in their environment, so that children that left its session or outlived it are found as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from cluster.process_variables import variables
from cluster.stack.errors import StackError
from experiments.atomic_file import atomic_write

MARK = "SWEEPBENCH_STACK"


@dataclass(frozen=True)
class Record:
    """One running component, stored in runs/.stack/<name>.json.

    `created`: the process's creation time; `started`: when `start` returned it. Both are Unix times in s.
    """

    name: str
    pid: int
    created: float
    started: float
    mark: str
    command: list[str]
    ports: dict[str, int]


def read_record(state: Path, name: str) -> Record | None:
    """The record of a component; None if there is none or it cannot be parsed."""
    try:
        return Record(**json.loads((state / f"{name}.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def forget(state: Path, name: str) -> None:
    """Remove a component's record."""
    (state / f"{name}.json").unlink(missing_ok=True)


def start(
    state: Path, name: str, command: Sequence[str], environment: Mapping[str, str], directory: Path, ports: Mapping[str, int]
) -> Record:
    """Start a component detached, with its output appended to <name>.log, and write its record.

    Raises OSError, and StackError if what could not be recorded does not end; a component without a record does not go on.
    """
    mark = secrets.token_hex(8)
    with open(state / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            # SPT_NOENV: else Ray's processes overwrite their environment, and the mark in it, with their titles
            env={**environment, MARK: mark, "SPT_NOENV": "1"},
            start_new_session=True,
        )
    try:
        record = Record(name, process.pid, psutil.Process(process.pid).create_time(), time.time(), mark, list(command), dict(ports))
        atomic_write(state / f"{name}.json", json.dumps(asdict(record), indent=1))
    except BaseException:  # on a full disk, say: without its record nothing would find it again
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        forget(state, name)  # it may have been written whole before the error
        stop(Record(name, process.pid, 0.0, 0.0, mark, [], {}), grace_s=0.0)  # children that left its session
        raise
    process.returncode = 0  # it is meant to outlive this process: suppress the warning about a running child
    return record


def alive(record: Record) -> bool:
    """True if the process that was started still runs."""
    return _leader(record) is not None


def members(record: Record) -> list[psutil.Process]:
    """Every process of the component: its leader, the leader's descendants, and all processes with its mark."""
    processes: dict[int, psutil.Process] = {}
    leader = _leader(record)
    if leader:
        processes[leader.pid] = leader
        with contextlib.suppress(psutil.Error):
            processes.update({child.pid: child for child in leader.children(recursive=True)})
    processes.update({process.pid: process for process in psutil.process_iter() if _marked(process, record.mark)})
    processes.pop(os.getpid(), None)
    return [process for process in processes.values() if _runs(process)]


def stop(record: Record, grace_s: float, first: int = signal.SIGTERM) -> bool:
    """End every process of the component and wait until all have ended; True if there were any.

    The outermost processes are asked by signal `first` and have `grace_s` seconds to end their children. Remaining processes are killed.
    Raises StackError if some do not end.
    """
    processes = members(record)
    if not processes:
        return False
    deadline = time.monotonic() + grace_s
    terminated: set[int] = set()
    while processes and time.monotonic() < deadline:
        pids = {process.pid for process in processes}
        for process in processes:
            try:
                if process.pid not in terminated and process.ppid() not in pids:
                    terminated.add(process.pid)
                    process.send_signal(first)
            except psutil.Error:
                continue
        psutil.wait_procs(processes, timeout=0.2)
        processes = members(record)
    for _ in range(50):
        if not processes:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(record.pid, os.WNOHANG)  # if this process started it: leave no zombie
            return True
        for process in processes:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(processes, timeout=0.2)
        processes = members(record)  # a process killed while it forks leaves a child
    raise StackError(f"{record.name}: pids {sorted(process.pid for process in processes)} do not end")


def _leader(record: Record) -> psutil.Process | None:
    try:
        process = psutil.Process(record.pid)
        # the creation time depends on the system clock, which may have been set since; the mark cannot change
        same = abs(process.create_time() - record.created) < 1.0 or _marked(process, record.mark)
    except psutil.Error:
        return None
    return process if same and _runs(process) else None


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return variables(process).get(MARK) == mark
    except (psutil.Error, OSError):
        return False  # it has ended, or belongs to another user


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
