"""Which processes other than the trial's used the host's cores: what a trial's note names when they disturbed it.

The shares of cpu.py say how much other work there was, since the kernel counts that exactly; here it is said who did it, as far as that
can be seen: not in another container, and not what began and ended between two looks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cluster.sampler.trial_processes import TrialProcesses

LOOK_S = 0.5  # between two looks at all processes
COST = 0.005  # of one core: on a host with so many processes that looking takes more of it, looks are rarer
NAMED = 5  # most processes that a look names
SMALL = 0.02  # of a core: what used less is not named
LONGEST = 60  # characters of a name
_PROC = Path("/proc")
_TEMPLATE = " -m cluster.worker.template"
_STAT_BYTES = 4096  # a line has some 300


class _Used(NamedTuple):
    name: str
    parent: int
    began: int  # in ticks since the host's start: another process may get the same id
    ticks: int  # of CPU time


class OtherProcesses:
    """Reads which other processes used most CPU time since the look before."""

    name = "busiest"

    def __init__(self, processes: TrialProcesses, worker: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`worker`: the process id of rank 0. Raises OSError where the kernel shows no processes."""
        self._processes, self._clock = processes, clock
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._look()
        self._sweep = self._flow_of(worker)

    def missing(self) -> dict[str, str]:
        return {}

    def read(self) -> dict[str, Any] | None:
        """`seconds` since the look before, and `processes`, the busiest first: {pid, name, cpu_s, sweep}. None before it is time for one.

        `sweep`: whether it is the process that runs the trial's sweep, or a descendant of it, such as its Prefect server.
        """
        if self._clock() < self._next_at:
            return None
        before, before_at = self._table, self._at
        self._look()
        seconds = self._at - before_at
        used = {
            pid: one.ticks - (before[pid].ticks if pid in before and before[pid].began == one.began else 0)
            for pid, one in self._table.items()
        }
        own = self._processes.pids
        least = SMALL * seconds * self._ticks
        others = sorted((-ticks, pid) for pid, ticks in used.items() if ticks >= least and not self._is_of(pid, own))
        return {
            "seconds": round(seconds, 3),
            "processes": [
                {
                    "pid": pid,
                    "name": _title(pid, self._table[pid].name),
                    "cpu_s": -ticks / self._ticks,
                    "sweep": self._is_of(pid, self._sweep),
                }
                for ticks, pid in others[:NAMED]
            ],
        }

    def _flow_of(self, worker: int) -> frozenset[int]:
        """The process that started the trial's, itself or through its template; empty where that is not known."""
        parent = self._table[worker].parent if worker in self._table else 0
        if parent in self._table and _title(parent, self._table[parent].name).endswith(_TEMPLATE):
            parent = self._table[parent].parent
        return frozenset({parent} - {0, 1})  # 1: it was orphaned

    def _look(self) -> None:
        began = time.process_time()
        self._at, self._table = self._clock(), dict(self._read_table())
        self._next_at = self._at + max(LOOK_S, (time.process_time() - began) / COST)

    def _read_table(self) -> Iterator[tuple[int, _Used]]:
        """With the operating system's own calls: pathlib takes three times as long, and there may be thousands of processes."""
        proc = os.open(_PROC, os.O_RDONLY)
        try:
            for pid in filter(str.isdigit, os.listdir(proc)):  # noqa: PTH208 - a descriptor
                try:
                    stat = os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)
                except OSError:  # it has ended
                    continue
                try:
                    yield int(pid), _parse(os.read(stat, _STAT_BYTES).decode(errors="replace"))
                except ProcessLookupError:  # it ended meanwhile
                    continue
                finally:
                    os.close(stat)
        finally:
            os.close(proc)

    def _is_of(self, pid: int, own: frozenset[int]) -> bool:
        """Whether it is one of the trial's processes or descends from one: those are found once a second, and may be new."""
        seen = set[int]()
        while pid in self._table and pid not in seen:
            if pid in own:
                return True
            seen.add(pid)
            pid = self._table[pid].parent
        return False

    def close(self) -> None:
        """Nothing is open."""


def _parse(stat: str) -> _Used:
    """A line of /proc/PID/stat, see proc(5)."""
    name, _, rest = stat.partition("(")[2].rpartition(")")  # a name may hold brackets and spaces
    fields = rest.split()  # from the third on
    return _Used(name, int(fields[1]), int(fields[19]), int(fields[11]) + int(fields[12]))


def _title(pid: int, name: str) -> str:
    """A process's name; with an interpreter of Python what it runs, and nothing else of its command line, which may hold what is secret.

    Names are whatever another user likes, and stand in reports: signs that mean something to Markdown or HTML are replaced.
    """
    return re.sub(r"[^\w ./:+-]", "?", " ".join([name, *_run_by_python(pid, name)]))[:LONGEST]


def _run_by_python(pid: int, name: str) -> list[str]:
    """`-m` and the module, `-c`, or the script's name; nothing for other programs."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[1:-1] if name.startswith("python") else []
    except OSError:
        return []
    for number, word in enumerate(words):
        if word in ("-m", "-c"):
            return [word, *(words[number + 1 : number + 2] if word == "-m" else [])]
        if not word.startswith("-") and words[number - 1 : number] not in (["-W"], ["-X"]):
            return [Path(word).name]
    return []
