"""The journal: one append-only, fsynced file per trial. Every other figure of the trial is derived from it.

Each line is one JSON object with `t` (Unix time, s), `kind` and `crc`. `crc` is the CRC-32 of the line's JSON without `crc`, seeded with
the previous line's CRC. A reader therefore detects a changed, missing or reordered line and names it. A writer that is killed may leave a
last line without its newline. Readers ignore that line, and the next writer cuts it off.

Kinds: attempt, packages, environment, phase, step, window, evaluation, note, end, close. An attempt starts the trial over: readers return
the last one, or the one that they ask for. What one writer wrote is a section: from its attempt record, which names the trial, to its
close record, which counts the section's records and has the CRC-32 of their JSON. A killed writer leaves no close record. The trial's
result.json repeats count and checksum, so a journal that was cut, also at the end of a line, and another trial's are found.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cluster.journal import writer_lock
from cluster.journal.errors import JournalError, LaterJournal
from experiments.journal_mark import JournalMark

VERSION = 2  # of the journals that are written; those before had no close record and no version

Record = dict[str, Any]
_TAIL = 65_536  # bytes; the last line of a journal is short


def encode(record: Record, previous: int) -> tuple[bytes, int]:
    """One line (bytes, newline included) and its CRC. A number that is not finite becomes null, with `<name>_text` beside it."""
    return _wrap(to_json(record), previous)


def to_json(record: Record) -> bytes:
    """A record as it stands in its line, without the checksum. Raises ValueError for a number inside a value that is not finite."""
    clean: Record = {}
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            clean[name] = None
            clean[f"{name}_text"] = str(value)
        else:
            clean[name] = value
    return json.dumps(clean, separators=(",", ":"), allow_nan=False).encode()


def _wrap(body: bytes, previous: int) -> tuple[bytes, int]:
    crc = zlib.crc32(body, previous)
    return b'%b,"crc":"%08x"}\n' % (body[:-1], crc), crc


def unwrap(line: bytes, previous: int, path: Path, number: int) -> tuple[bytes, int]:
    """The JSON in one line, without the checksum, and the line's CRC. Raises JournalError if the CRC does not match."""
    head, mark, tail = line.rpartition(b',"crc":"')
    if not mark or len(tail) < 11 or tail[8:] != b'"}\n':
        raise JournalError(path, number, "is not a journal line")
    body = head + b"}"
    crc = zlib.crc32(body, previous)
    if tail[:8] != b"%08x" % crc:
        raise JournalError(path, number, f"checksum is {tail[:8].decode(errors='replace')}, the content gives {crc:08x}")
    return body, crc


def decode(line: bytes, previous: int, path: Path, number: int) -> tuple[Record, int]:
    """The record in one line and the line's CRC. Raises JournalError if the CRC does not match or the line is not a record."""
    body, crc = unwrap(line, previous, path, number)
    return _parse(body, path, number), crc


def _parse(body: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JournalError(path, number, f"is not JSON ({error})") from error
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise JournalError(path, number, "is no record: it has no kind")
    return record


@dataclass
class Section:
    """What one writer wrote, as far as it was read. `start`: how many records of the file are before it.

    `records` and `checksum` (the CRC-32 of their JSON) are without the close record.
    """

    start: int
    attempt: int
    trial: str | None
    version: int
    records: int = 0
    checksum: int = 0
    closed: bool = False

    @property
    def mark(self) -> JournalMark:
        """What result.json says of it."""
        return JournalMark(records=self.records, checksum=f"{self.checksum:08x}", closed=self.closed)

    def add(self, body: bytes) -> None:
        self.records += 1
        self.checksum = zlib.crc32(body, self.checksum)


def _section(record: Record, start: int, path: Path, number: int) -> Section:
    """The section that an attempt record begins. Raises LaterJournal, and JournalError for one that begins no attempt."""
    version, attempt, trial = record.get("version", 1), record.get("attempt"), record.get("trial")
    if isinstance(version, int) and version > VERSION:
        problem = f"is of version {version}, and this one reads journals to version {VERSION}"
        raise LaterJournal(path, number, problem, "read it with that version")
    if not (
        isinstance(version, int) and isinstance(attempt, int) and isinstance(trial, str | None) and type(record.get("t")) in (float, int)
    ):
        raise JournalError(path, number, "begins no attempt: it lacks version, attempt, t or trial")
    return Section(start, attempt, trial, version)


class JournalWriter:
    """Appends records. `append` queues a record's JSON. A thread writes and fsyncs every `interval` seconds, so a step never waits for a
    disk.

    `append`, `flush` and `close` raise OSError once a write has failed, for example on a full disk.
    """

    def __init__(self, path: Path, attempt: int, interval: float = 0.5, *, trial: str | None = None) -> None:
        """`trial`: the key of the trial that this is the journal of, which its first record then names."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole, self._crc = _whole_lines(path)
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - lives as long as the writer
        self._descriptor = self._file.fileno()
        writer_lock.hold(self._descriptor)
        self._file.truncate(whole)
        self._file.seek(whole)
        self._queue: list[bytes] = []  # records as JSON
        self._lock = threading.Lock()  # queue
        self._disk = threading.Lock()  # file and checksum
        self._error: OSError | None = None
        self._stop = threading.Event()
        self._interval = interval
        self._section = Section(0, attempt, trial, VERSION)
        first: Record = {"attempt": attempt, "pid": os.getpid(), "version": VERSION, **({"trial": trial} if trial else {})}
        self.append("attempt", **first)
        self.flush()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        """Queue one record. `t` is when it happened (Unix time, s), by default now.

        Raises OSError after a failed write, and TypeError or ValueError for a value that JSON has not: here, where its caller hears of it.
        """
        if self._error:
            raise self._error
        body = to_json({"kind": kind, "t": time.time() if t is None else t, **fields})
        with self._lock:
            self._queue.append(body)

    def flush(self) -> None:
        """Write the queued records and fsync the file. Raises OSError."""
        with self._disk:
            if self._error:
                raise self._error
            with self._lock:
                bodies, self._queue = self._queue, []
            if bodies:
                self._write(bodies)

    def _write(self, bodies: Iterable[bytes]) -> None:
        lines = []
        for body in bodies:
            line, self._crc = _wrap(body, self._crc)
            self._section.add(body)
            lines.append(line)
        try:
            self._file.write(b"".join(lines))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            error.filename = str(self.path)  # whoever reads of it should learn of which disk it is
            self._error = error
            writer_lock.release(self._descriptor)  # nothing more is written
            raise

    def close(self) -> None:
        """Write the queued records and the close record, stop the thread and close the file. Raises OSError."""
        if self._file.closed:
            return
        self._stop.set()
        self._thread.join()
        try:
            self.flush()
            with self._disk:
                mark = {"records": self._section.records, "checksum": f"{self._section.checksum:08x}"}
                self._write([to_json({"kind": "close", "t": time.time(), **mark})])
        finally:
            writer_lock.release(self._descriptor)
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
    """Reads a journal that is still being written. `poll()` returns the complete records added since the last call.

    `trial`: the key of the trial that it must be of; None: of any.
    """

    def __init__(self, path: Path, trial: str | None = None) -> None:
        self.path, self.trial = path, trial
        self.sections: list[Section] = []
        self._offset = self._crc = self._line = 0

    @property
    def offset(self) -> int:
        """Bytes of complete lines read so far."""
        return self._offset

    @property
    def checksum(self) -> int:
        """CRC of the last line read: the seed of the next line's."""
        return self._crc

    @property
    def lines(self) -> int:
        """Number of complete lines read so far."""
        return self._line

    def poll(self) -> list[Record]:
        """New records; none while the file does not exist.

        Raises JournalError for a file that cannot be read, and at the first line whose CRC does not match or that cannot be where it is.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                lines = file.readlines()  # cut at newlines alone; splitlines would cut at carriage returns too
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(self.path, 0, f"cannot be read ({error.strerror})") from error
        if lines and not lines[-1].endswith(b"\n"):
            del lines[-1]
        records = []
        for line in lines:
            body, crc = unwrap(line, self._crc, self.path, self._line + 1)
            record = _parse(body, self.path, self._line + 1)
            self._place(record, body)
            self._crc = crc
            self._line += 1
            self._offset += len(line)
            records.append(record)
        return records

    def _place(self, record: Record, body: bytes) -> None:
        """Count the record in its section. Raises JournalError where it cannot be there."""
        kind, number = record["kind"], self._line + 1
        if kind == "attempt":
            section = _section(record, self._line, self.path, number)
            if section.trial is not None and self.trial not in (None, section.trial):
                raise JournalError(self.path, number, f"is of trial {section.trial}, not of {self.trial}")
            self.sections.append(section)
        if not self.sections:
            return
        section = self.sections[-1]
        if section.closed:
            raise JournalError(self.path, number, "comes after the record that closes its attempt")
        if kind != "close":
            section.add(body)
        elif (record.get("records"), record.get("checksum")) != (section.mark.records, section.mark.checksum):
            raise JournalError(self.path, number, f"closes {record.get('records')} other records than the {section.records} before it")
        else:
            section.closed = True


@dataclass
class Journal:
    """One attempt of a trial, its records sorted by kind. `checksum` (8 hex digits) identifies the journal's content."""

    attempt: int = 0
    trial: str | None = None  # the trial's key; None in early journals
    packages: dict[str, str] = field(default_factory=dict)  # name -> version of all that is installed; {} in early journals
    version: int = 1  # 1: from before attempts were closed
    mark: JournalMark | None = None  # count and checksum of its records; None: it was not closed
    environment: Record = field(default_factory=dict)
    steps: list[Record] = field(default_factory=list)
    window: Record | None = None
    evaluations: list[Record] = field(default_factory=list)
    notes: list[Record] = field(default_factory=list)
    phases: list[Record] = field(default_factory=list)
    end: Record | None = None
    started_at: float | None = None
    checksum: str = "00000000"
    file: list[Record] = field(default_factory=list, repr=False, compare=False)  # every record of the file, of all attempts

    def add(self, record: Record) -> None:
        """Add one record. An `attempt` record discards all earlier ones."""
        match record["kind"]:
            case "attempt":
                self.__init__()  # type: ignore[misc]
                self.attempt, self.started_at, self.trial = record["attempt"], record["t"], record.get("trial")
                self.version = record.get("version", 1)
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


def read_journal(path: Path, attempt: int | None = None, trial: str | None = None) -> Journal:
    """The last attempt in the journal at `path`, or the one of this number; an empty Journal if it is not there. Raises JournalError.

    The checksum is that of the whole file in either case. `trial`: the key of the trial that it must be of.
    """
    follower, journal = JournalFollower(path, trial), Journal()
    everything = follower.poll()
    records, section = _attempt_of(follower, everything, attempt)
    for record in records:
        journal.add(record)
    journal.file = everything
    if section is not None and section.closed:
        journal.mark = section.mark
    journal.checksum = f"{follower.checksum:08x}"
    return journal


def last_checksum(path: Path) -> str:
    """The checksum of a journal, as in `Journal`, from its last complete line alone: of one that was found whole. Raises JournalError."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read()
    except FileNotFoundError:
        return Journal().checksum
    except OSError as error:
        raise JournalError(path, 0, f"cannot be read ({error.strerror})") from error
    end = tail.rfind(b'"}\n')
    if end < 8 or b"\n" in tail[end + 3 :]:
        return read_journal(path).checksum
    return tail[end - 8 : end].decode(errors="replace")


def attempt_in(follower: JournalFollower, attempt: int | None = None) -> tuple[list[Record], Section | None]:
    """The records of the last section of a file, or of the last one of this attempt, without the close record, and that section.

    Nothing where there is none.

    Raises JournalError.
    """
    return _attempt_of(follower, follower.poll(), attempt)


def _attempt_of(follower: JournalFollower, records: list[Record], attempt: int | None) -> tuple[list[Record], Section | None]:
    for section in reversed(follower.sections):
        if attempt in (None, section.attempt):
            return records[section.start : section.start + section.records], section
    return [], None


def _whole_lines(path: Path) -> tuple[int, int]:
    """Bytes of complete lines and the last CRC of an existing journal. Raises JournalError if the journal is damaged."""
    follower = JournalFollower(path)
    follower.poll()
    return follower.offset, follower.checksum
