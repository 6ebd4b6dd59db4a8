"""slots.jsonl: when each trial took its pool's slots, when each of its attempts was started, and when it gave the slots back.

One JSON object a line, appended by the flow that holds the sweep's lease; `t` is Unix time, s. Lines of one flow carry the same `flow`, so
that the time between two flows, in which nobody held the slots, is told from the time between two trials.

While a pool is down its trial takes the slots every few seconds to ask again. That is two lines, however long it lasts: the trial
withdraws, and then it holds the slots, or not. This one says how often it asked in vain so far; each time that it asks it is written over
before, so that a flow that is killed while the pool starts the trial has told of the slots.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)
_ROOM = 64  # bytes by which a line that is written over may grow: its slots may have other names, its times more digits
TAKEN, STARTED, GIVEN_BACK, WITHDRAWN = "taken", "started", "given_back", "withdrawn"


@dataclass(frozen=True)
class _Place:
    """Where a line is in the file, without its newline. Bytes."""

    offset: int
    size: int


@dataclass
class _Outage:
    """Of a trial that gave its slots back, since its pool is down."""

    asked_in_vain: int = 0  # how often since then
    line: _Place | None = None  # the one that is written over


class SlotLog:
    """The lines of one flow. Its methods may be called from several threads. No trial ends by a line that cannot be written.

    It is written with the next one; so it is lost only where the flow can write none until it ends. A warning tells of the first.
    """

    def __init__(self, path: Path) -> None:
        """`path`: the sweep's slots.jsonl."""
        self._path, self._flow, self._lock = path, secrets.token_hex(4), threading.Lock()
        self._outages: dict[str, _Outage] = {}  # of trials that wait for a pool, by key
        self._unwritten = b"\n" if _is_cut_off(path) else b""

    def taken(self, key: str, pool: str, slots: Sequence[str], asked_at: float) -> None:
        """The trial holds `slots` (names of their locks: two pools on the same nodes share them) and asked for them at `asked_at`."""
        self._tell(TAKEN, key, self._outages.get(key), pool=pool, slots=list(slots), asked=asked_at)

    def started(self, key: str, attempt: int) -> None:
        """The trial's launcher is asked to start an attempt, or one that another flow started is followed in the slots.

        Where the pool was down it is told only once the pool has started it.
        """
        self._outages.pop(key, None)
        self._tell(STARTED, key, attempt=attempt)

    def given_back(self, key: str) -> None:
        """The trial no longer holds its slots."""
        self._outages.pop(key, None)
        self._tell(GIVEN_BACK, key)

    def given_up(self, key: str) -> None:
        """The trial ends without slots: it waited for its pool, or for the slots themselves."""
        if outage := self._outages.pop(key, None):
            self._tell(WITHDRAWN, key, outage)

    def withdrawn(self, key: str) -> None:
        """The trial gives its slots back for now: its pool, which is down, could not be asked to start the attempt that was begun last.

        That attempt did not hold them. Nor did the trial, where no other attempt had run in them before.
        """
        if outage := self._outages.get(key):
            outage.asked_in_vain += 1
            self._tell(WITHDRAWN, key, outage)
            return
        self._outages[key] = _Outage()
        self._tell(WITHDRAWN, key)

    def _tell(self, event: str, key: str, outage: _Outage | None = None, **fields: Any) -> None:
        """One line; of an outage in the place of its line before, if it has room there."""
        more = {} if outage is None else {"asked_in_vain": outage.asked_in_vain}
        line = json.dumps({"t": time.time(), "event": event, "flow": self._flow, "trial": key, **fields, **more}).encode()
        with self._lock:
            if outage is None:
                self._append(line)
            elif outage.line is None or not self._write_over(outage.line, line):
                outage.line = self._append(line.ljust(len(line) + _ROOM))

    def _append(self, line: bytes) -> _Place | None:
        """Where it is now; None where it could not be written."""
        text = self._unwritten + line + b"\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                if os.write(descriptor, text) < len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                end = os.lseek(descriptor, 0, os.SEEK_CUR)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._unwritten.strip():
                _log.warning(
                    "%s cannot be written (%s): if that stays so, where the held time went is not known", self._path, error.strerror
                )
            self._unwritten = text if self._unwritten else b"\n" + text  # which ends what was written of it
            return None
        self._unwritten = b""
        return _Place(end - len(line) - 1, len(line))

    def _write_over(self, place: _Place, line: bytes) -> bool:
        """Whether it was written there."""
        if len(line) > place.size:
            return False
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY)  # without O_APPEND, which would append it
            try:
                return os.pwrite(descriptor, line.ljust(place.size), place.offset) == place.size
            finally:
                os.close(descriptor)
        return False


def _is_cut_off(path: Path) -> bool:
    """Whether the last line was written in part, as by a flow whose disk was full to its end. The next one would be lost behind it."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)  # OSError for an empty file
        return file.read() != b"\n"
    return False


@dataclass(frozen=True)
class Hold:
    """A trial's hold of its slots. Times: Unix time, s. `starts`: (when, attempt) of the attempts that were started meanwhile, or
    followed from then on, in order.

    `given_back`: None where the flow died first, or holds them still.
    """

    flow: str
    trial: str
    pool: str
    slots: Sequence[str]
    asked: float
    taken: float
    starts: Sequence[tuple[float, int]]
    given_back: float | None


def read_holds(path: Path) -> list[Hold]:
    """The holds in a slots.jsonl, in the order in which they began; [] without the file. Lines that are cut off or damaged are skipped."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        _log.warning("%s cannot be read (%s): where the held time went is not known", path, error.strerror)
        return []
    holds: list[Hold] = []
    open_: dict[tuple[str, str], dict[str, Any]] = {}
    for line in dict.fromkeys(lines):  # what was written in part is there once more: see SlotLog
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            event = json.loads(line)
            at, name, of = float(event["t"]), event["event"], (str(event["flow"]), str(event["trial"]))
            if name == TAKEN:
                slots = tuple(str(slot) for slot in event["slots"])
                open_[of] = {"pool": str(event["pool"]), "slots": slots, "asked": float(event["asked"]), "taken": at, "starts": []}
            elif name == STARTED and of in open_:
                open_[of]["starts"].append((at, int(event["attempt"])))
            elif name == WITHDRAWN and of in open_:
                fields = open_.pop(of)
                if ran := _but_the_last(fields["starts"]):
                    holds.append(Hold(*of, **{**fields, "starts": ran}, given_back=at))
            elif name == GIVEN_BACK and of in open_:
                holds.append(Hold(*of, **open_.pop(of), given_back=at))
    holds += [Hold(*of, **fields, given_back=None) for of, fields in open_.items()]
    return sorted(holds, key=lambda hold: hold.taken)


def _but_the_last(starts: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Without those of the last attempt, which may have been tried several times."""
    return [start for start in starts if start[1] != starts[-1][1]]


def flows_of(path: Path) -> dict[str, str]:
    """Trial key -> the flow that held its slots last, by a slots.jsonl; {} without the file."""
    return {hold.trial: hold.flow for hold in read_holds(path)}
