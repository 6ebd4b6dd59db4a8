"""The journal: one append-only, fsynced file per trial. Every other figure of the trial is derived from it.

Each line is one JSON object with `t` (Unix time, s), `kind` and `crc`. `crc` is the CRC-32 of the line's JSON without `crc`, seeded with
the previous line's CRC. A reader therefore detects a changed, missing or reordered line and names it. A writer that is killed may leave a
last line without its newline. Readers ignore that line, and the next writer cuts it off.

Kinds: attempt, packages, environment, phase, step, window, evaluation, note, end. An attempt starts the trial over: readers return the last
one, or the one that they ask for.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from experiments.config.errors import UserError

Record = dict[str, Any]


class JournalError(UserError):
    """The journal was changed after it was written. The message names the file and the line."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}, line {line}: {problem}; the file was changed after it was written, move it away to run the trial again")
        self.path, self.line = path, line


def encode(record: Record, previous: int) -> tuple[bytes, int]:
    """One line (bytes, newline included) and its CRC. A number that is not finite becomes null, with `<name>_text` beside it."""
    clean: Record = {}
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            clean[name] = None
            clean[f"{name}_text"] = str(value)
        else:
            clean[name] = value
    body = json.dumps(clean, separators=(",", ":"), allow_nan=False)
    crc = zlib.crc32(body.encode(), previous)
    return f'{body[:-1]},"crc":"{crc:08x}"}}\n'.encode(), crc


def decode(line: bytes, previous: int, path: Path, number: int) -> tuple[Record, int]:
    """The record in one line and the line's CRC. Raises JournalError if the CRC does not match or the line is not a record."""
    head, mark, tail = line.rpartition(b',"crc":"')
    if not mark or len(tail) < 11 or tail[8:] != b'"}\n':
        raise JournalError(path, number, "is not a journal line")
    crc = zlib.crc32(head + b"}", previous)
    if tail[:8] != f"{crc:08x}".encode():
        raise JournalError(path, number, f"checksum is {tail[:8].decode(errors='replace')}, the content gives {crc:08x}")
    record: Record = json.loads(head + b"}")
    return record, crc


class JournalWriter:
    """Appends records. `append` only queues. A thread writes and fsyncs every `interval` seconds, so a step never waits for a disk.

    `append`, `flush` and `close` raise OSError once a write has failed, for example on a full disk.
    """

    def __init__(self, path: Path, attempt: int, interval: float = 0.5, *, trial: str | None = None) -> None:
        """`trial`: the key of the trial that this is the journal of, which its first record then names."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole, self._crc = _whole_lines(path)
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - lives as long as the writer
        self._file.truncate(whole)
        self._file.seek(whole)
        self._queue: list[Record] = []
        self._lock = threading.Lock()  # queue
        self._disk = threading.Lock()  # file and checksum
        self._error: OSError | None = None
        self._stop = threading.Event()
        self._interval = interval
        first: Record = {"attempt": attempt, "pid": os.getpid(), **({"trial": trial} if trial else {})}
        self.append("attempt", **first)
        self.flush()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        """Queue one record. `t` is when it happened (Unix time, s), by default now. Raises OSError after a failed write."""
        if self._error:
            raise self._error
        with self._lock:
            self._queue.append({"kind": kind, "t": time.time() if t is None else t, **fields})

    def flush(self) -> None:
        """Write the queued records and fsync the file. Raises OSError."""
        with self._disk:
            if self._error:
                raise self._error
            with self._lock:
                records, self._queue = self._queue, []
            if not records:
                return
            lines = []
            for record in records:
                line, self._crc = encode(record, self._crc)
                lines.append(line)
            try:
                self._file.write(b"".join(lines))
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                self._error = error
                raise

    def close(self) -> None:
        """Write the queued records, stop the thread and close the file. Raises OSError."""
        if self._file.closed:
            return
        self._stop.set()
        self._thread.join()
        try:
            self.flush()
        finally:
            try:
                self._file.close()
            except OSError as error:  # the buffer could not be written either
                raise self._error or error from None

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.flush()
            except OSError:
                return  # kept in self._error; the next append raises it in the loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except OSError:
            if error is None:
                raise


class JournalFollower:
    """Reads a journal that is still being written. `poll()` returns the complete records added since the last call."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset, self._crc, self._line = path, 0, 0, 0

    @property
    def offset(self) -> int:
        """Bytes of complete lines read so far."""
        return self._offset

    @property
    def checksum(self) -> int:
        """CRC of the last line read: the seed of the next line's."""
        return self._crc

    def poll(self) -> list[Record]:
        """New records; none while the file does not exist. Raises JournalError at the first line whose CRC does not match."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        records = []
        for line in text.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            record, self._crc = decode(line, self._crc, self.path, self._line + 1)
            self._line += 1
            self._offset += len(line)
            records.append(record)
        return records


@dataclass
class Journal:
    """One attempt of a trial, its records sorted by kind. `checksum` (8 hex digits) identifies the journal's content."""

    attempt: int = 0
    trial: str | None = None  # the trial's key; None in early journals
    packages: dict[str, str] = field(default_factory=dict)  # name -> version of all that is installed; {} in early journals
    environment: Record = field(default_factory=dict)
    steps: list[Record] = field(default_factory=list)
    window: Record | None = None
    evaluations: list[Record] = field(default_factory=list)
    notes: list[Record] = field(default_factory=list)
    phases: list[Record] = field(default_factory=list)
    end: Record | None = None
    started_at: float | None = None
    checksum: str = "00000000"

    def add(self, record: Record) -> None:
        """Add one record. An `attempt` record discards all earlier ones."""
        match record["kind"]:
            case "attempt":
                self.__init__()  # type: ignore[misc]
                self.attempt, self.started_at, self.trial = record["attempt"], record["t"], record.get("trial")
            case "packages":
                self.packages = record["versions"]
            case "environment":
                self.environment = {k: v for k, v in record.items() if k not in ("kind", "t")}
            case "step":
                self.steps.append(record)
            case "window":
                self.window = record
            case "evaluation":
                self.evaluations.append(record)
            case "note":
                self.notes.append(record)
            case "phase":
                self.phases.append(record)
            case "end":
                self.end = record


def read_journal(path: Path, attempt: int | None = None) -> Journal:
    """The last attempt in the journal at `path`, or the one of this number; an empty Journal if it is not there. Raises JournalError.

    The checksum is that of the whole file in either case.
    """
    follower, journal, wanted = JournalFollower(path), Journal(), True
    for record in follower.poll():
        if record["kind"] == "attempt":
            wanted = attempt in (None, record["attempt"])
        if wanted:
            journal.add(record)
    journal.checksum = f"{follower.checksum:08x}"
    return journal


def _whole_lines(path: Path) -> tuple[int, int]:
    """Bytes of complete lines and the last CRC of an existing journal. Raises JournalError if the journal is damaged."""
    follower = JournalFollower(path)
    follower.poll()
    return follower.offset, follower.checksum
