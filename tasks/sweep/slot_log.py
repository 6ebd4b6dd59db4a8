"""slots.jsonl: when each trial took its pool's slots, when each of its attempts was started, and when it gave the slots back.

One JSON object a line, appended by the flow that holds the sweep's lease; `t` is Unix time, s. Lines of one flow carry the same `flow`, so
that the time between two flows, in which nobody held the slots, is told from the time between two trials.

While a pool is down its trial takes the slots every few seconds to ask again. That is two lines, however long it lasts: the trial
withdraws, and then it takes the slots for good, or has stopped asking; this one says how often it asked in vain meanwhile.
"""

from __future__ import annotations

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
TAKEN, STARTED, GIVEN_BACK, WITHDRAWN = "taken", "started", "given_back", "withdrawn"


@dataclass
class _Outage:
    """Of a trial that gave its slots back, since its pool is down."""

    asked_in_vain: int = 0  # how often since then
    taken: dict[str, Any] | None = None  # the slots that it holds just now, to ask again


class SlotLog:
    """The lines of one flow. Its methods may be called from several threads. A line that cannot be written is lost: no trial ends by it."""

    def __init__(self, path: Path) -> None:
        """`path`: the sweep's slots.jsonl."""
        self._path, self._flow, self._lock = path, secrets.token_hex(4), threading.Lock()
        self._outages: dict[str, _Outage] = {}  # of trials that wait for a pool, by key

    def taken(self, key: str, pool: str, slots: Sequence[str], asked_at: float) -> None:
        """The trial holds `slots` (names of their locks: two pools on the same nodes share them) and asked for them at `asked_at`."""
        fields: dict[str, Any] = {"t": time.time(), "pool": pool, "slots": list(slots), "asked": asked_at}
        if outage := self._outages.get(key):
            outage.taken = fields  # it is no hold yet: the pool is asked once more
        else:
            self._write(TAKEN, key, **fields)

    def started(self, key: str, attempt: int) -> None:
        """The trial's launcher is asked to start an attempt, or one that another flow started is followed in the slots.

        Where the pool was down it is told only once the pool has started it.
        """
        self._end_outage(key)
        self._write(STARTED, key, attempt=attempt)

    def given_back(self, key: str) -> None:
        """The trial no longer holds its slots."""
        self._end_outage(key)
        self._write(GIVEN_BACK, key)

    def given_up(self, key: str) -> None:
        """The trial ends without slots: it waited for its pool, or for the slots themselves."""
        if outage := self._outages.pop(key, None):
            self._write(WITHDRAWN, key, asked_in_vain=outage.asked_in_vain)

    def withdrawn(self, key: str) -> None:
        """The trial gives its slots back for now: its pool, which is down, could not be asked to start the attempt that was begun last.

        That attempt did not hold them. Nor did the trial, where no other attempt had run in them before.
        """
        if outage := self._outages.get(key):
            outage.asked_in_vain += 1
            outage.taken = None
            return
        self._outages[key] = _Outage()
        self._write(WITHDRAWN, key)

    def _end_outage(self, key: str) -> None:
        """The trial waits no longer: it holds the slots that it took last."""
        outage = self._outages.pop(key, None)
        if outage is not None and outage.taken is not None:
            self._write(TAKEN, key, **outage.taken, asked_in_vain=outage.asked_in_vain)

    def _write(self, event: str, key: str, t: float | None = None, **fields: Any) -> None:
        line = json.dumps({"t": time.time() if t is None else t, "event": event, "flow": self._flow, "trial": key, **fields}) + "\n"
        with self._lock, suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)


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
    for line in lines:
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
