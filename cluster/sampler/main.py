"""The sampler: a process beside a trial's rank 0 that records the state of its device and host, ten times a second.

    python -m cluster.sampler.main --out FOLDER/device_state.jsonl --attempt 1 --device cuda --count 1 --trial KEY --worker PID

It ends when its standard input becomes readable (a byte or its end), and when the worker is gone: a child of the worker may hold the other
end of the pipe, so its parent's id is looked at too. It does not carry the trial's mark: nobody waits for it or ends it as a part of
the trial. So it is still there when the worker was killed, and releases clocks that it locked.

The file is a journal (cluster/journal/journal.py); experiments/device_state.py describes its records. It is fsynced once a second, not with
each record: a record that a power cut takes is worth as little as the trial that it was to explain, and ten fsyncs a second would
compete with the journal's.

It imports no torch, numpy or pydantic: it should be there before the trial begins, and take next to nothing from it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalWriter
from cluster.sampler.clock_lock import ClockLock
from cluster.sampler.trial_processes import TrialProcesses

HZ = 10.0
FSYNC_S = 1.0


class Source(Protocol):
    """Where readings come from. `name`: the field of a state record that they are."""

    name: str

    def missing(self) -> dict[str, str]:
        """What this source cannot tell here, and why."""

    def read(self) -> Any:
        """One reading, or None where it is not time for one. Raises what the source raises; the record is then written without it."""

    def close(self) -> None:
        """Release what it holds."""


def main(arguments: list[str] | None = None) -> int:
    """Sample until told to stop. Exit status 1, with a line on stderr, where the file cannot be written."""
    options = _parse(arguments)
    ended = _on_sigterm()
    lock = _lock(options)
    try:
        with JournalWriter(options.out, options.attempt, interval=FSYNC_S) as journal:
            sources, unavailable = _open(options)
            journal.append("sampler", **_header(options, sources, unavailable), locked_clocks_mhz=options.lock if lock else None)
            sample(journal, sources, lambda until: wait(until, options.worker, sys.stdin.fileno()) and not ended)
            for source in sources:
                source.close()
    except (OSError, JournalError) as error:
        print(f"the sampler of the device's state ended: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        if lock is not None and (problem := lock.release()):
            print(f"the clocks stay locked: {problem}", file=sys.stderr, flush=True)
    return 0


def sample(journal: JournalWriter, sources: list[Source], wait_until: Callable[[float], bool], hz: float = HZ) -> None:
    """Append a state record at each multiple of 1 / hz s, until `wait_until` (time.monotonic, s) says to end, and a last one then.

    A record that is late delays none after it: times are counted from the start, and what was missed is left out. The last one covers the
    end of a window that ends with the trial.
    """
    started, tick = time.monotonic(), 0
    failed: set[str] = set()
    while True:
        journal.append("state", **_readings(sources, failed))
        tick = max(tick + 1, math.ceil((time.monotonic() - started) * hz))
        if not wait_until(started + tick / hz):
            break
    journal.append("state", **_readings(sources, failed))


def _readings(sources: list[Source], failed: set[str]) -> dict[str, Any]:
    """What the sources say now, without those that fail. The first failure of each is printed, and its name added to `failed`."""
    record = {}
    for source in sources:
        try:
            if (reading := source.read()) is not None:
                record[source.name] = reading
        except Exception as error:  # the source's own; the others go on
            if source.name not in failed:
                failed.add(source.name)
                print(f"the sampler cannot read {source.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return record


def wait(until: float, worker: int, stdin: int) -> bool:
    """Wait until that time (time.monotonic, s). Returns False at once when `stdin` becomes readable, and if `worker` is not the parent."""
    readable, _, _ = select.select([stdin], [], [], max(0.0, until - time.monotonic()))
    return not readable and os.getppid() == worker


def _open(options: argparse.Namespace) -> tuple[list[Source], dict[str, str]]:
    """The sources that this machine has, and what is not available with the reason."""
    processes = TrialProcesses(options.trial, options.worker)
    makers: dict[str, Callable[[], Source | None]] = {
        "devices": lambda: _device_source(options, processes),
        "cpu": lambda: _cpu_source(processes),
        "busiest": lambda: _busiest_source(processes, options.worker),  # after cpu, which looks for the trial's processes
    }
    sources: list[Source] = []
    unavailable: dict[str, str] = {}
    for name, make in makers.items():
        try:
            source = make()
            if source is not None:
                unavailable |= source.missing()
                sources.append(source)
        except Exception as error:  # ImportError, NVMLError, ToolError, OSError, psutil.Error
            unavailable[name] = f"{type(error).__name__}: {error}"
    return sources, unavailable


def _device_source(options: argparse.Namespace, processes: TrialProcesses) -> Source | None:
    if options.device == "cuda":
        from cluster.sampler.nvml import NvmlSource

        return NvmlSource(options.count, processes)
    if options.device == "hpu":
        from cluster.sampler.hpu import HpuSource

        return HpuSource(options.count)
    return None  # on a CPU the host is the device; another kind has no source yet


def _cpu_source(processes: TrialProcesses) -> Source:
    from cluster.sampler.cpu import CpuSource

    return CpuSource(processes)


def _busiest_source(processes: TrialProcesses, worker: int) -> Source:
    from cluster.sampler.other_processes import OtherProcesses

    return OtherProcesses(processes, worker)


def _header(options: argparse.Namespace, sources: list[Source], unavailable: dict[str, str]) -> dict[str, Any]:
    """The `sampler` record's fields."""
    return {
        "attempt": options.attempt,
        "device": options.device,
        "hz": HZ,
        "cores": psutil.cpu_count(),
        "user": _user(),
        "emulated": options.emulated or any(getattr(source, "emulated", False) for source in sources),
        "sources": {**{source.name: None for source in sources}, **unavailable},
    }


def _user() -> str | None:
    try:
        return psutil.Process().username()
    except (psutil.Error, OSError, KeyError):  # a container's user may have no name
        return None


def _lock(options: argparse.Namespace) -> ClockLock | None:
    """Lock the clocks where asked, and tell the worker, which waits for it, in one line of JSON on standard output."""
    if options.lock is None:
        return None
    from cluster.visible_gpus import visible

    lock = ClockLock(visible(options.count), options.lock)
    reason = lock.set()
    print(json.dumps({"locked_clocks_mhz": None if reason else options.lock, "reason": reason}), flush=True)
    return None if reason else lock


def _on_sigterm() -> list[int]:
    """A list that is empty until the process is asked to end. A person's Ctrl-C is the worker's concern."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return ended


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cluster.sampler.main", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the file; an attempt is appended")
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--device", required=True, help="kind of the trial's device")
    parser.add_argument("--count", type=int, default=1, help="how many of the visible devices the trial uses on this node")
    parser.add_argument("--trial", required=True, help="the trial's key, by which its processes are found")
    parser.add_argument("--worker", type=int, required=True, help="process id of rank 0, the parent of this process")
    parser.add_argument("--emulated", action="store_true", help="the pool says that its device is emulated")
    parser.add_argument("--lock", type=int, metavar="MHZ", help="lock the GPUs' clocks; prints one JSON line that says whether they are")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
