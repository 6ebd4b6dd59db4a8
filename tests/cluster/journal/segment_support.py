"""Storages that fail as told, and journals on them in segments."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from cluster.journal.journal import JournalWriter
from cluster.journal.lines import encode
from cluster.journal.object_store import Storage, StorageError
from cluster.journal.replication import JournalMirror
from cluster.trial_layout import journal_segment


class Gate:
    """Holds up whoever comes, until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


class Flaky(Storage):
    """Takes an object, says that it did not, and stores nothing, as often as told. `gate`: does not answer until it is opened."""

    lost_replies = refused = 0
    gate: Gate | None = None

    def put(self, name: str, data: bytes) -> None:
        if gate := self.gate:
            gate.reached.set()
            assert gate.opened.wait(60)
        if self.refused > 0:
            self.refused -= 1
            raise StorageError("refused")
        super().put(name, data)
        if self.lost_replies > 0:
            self.lost_replies -= 1
            raise StorageError("the reply was lost")


class Memory(Storage):
    """Objects in memory. `after_put` and `before_get` are called with the name."""

    def __init__(self) -> None:
        super().__init__("memory://store?secret")
        self.objects: dict[str, bytes] = {}
        self.sent: list[tuple[str, bytes]] = []

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.sent.append((name, data))
        self.after_put(name)

    def get(self, name: str) -> bytes | None:
        self.before_get(name)
        return self.objects.get(name)

    def after_put(self, name: str) -> None: ...

    def before_get(self, name: str) -> None: ...


def lines(*records: dict[str, object], crc: int = 0) -> tuple[bytes, int]:
    """A segment of these records, whose checksums go on from `crc`; and its last checksum."""
    text = b""
    for record in records:
        line, crc = encode(record, crc)
        text += line
    return text, crc


def segments(count: int) -> dict[str, bytes]:
    """An attempt's journal of `count` steps, a segment for each record."""
    objects, crc = {}, 0
    records = [{"kind": "attempt", "attempt": 1, "t": 1.0}, *({"kind": "step", "step": number} for number in range(1, count + 1))]
    for number, record in enumerate(records):
        objects[journal_segment(1, 0, number)], crc = lines(record, crc=crc)
    return objects


def send(storage: Storage, folder: Path, attempt: int, part: int, steps: list[int], note: str | None = None) -> None:
    path = folder / f"node-{attempt}-{part}" / "journal.jsonl"
    with JournalWriter(path, attempt) as journal:
        if note:
            journal.append("note", text=note)
        for step in steps:
            journal.append("step", step=step)
    JournalMirror(path, storage, attempt, part).close()


def until(condition: object, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.01)
