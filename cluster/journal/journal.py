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

import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cluster.journal.errors import JournalError, JournalInUse, LaterJournal, Writer
from cluster.journal.lines import Record, parse, to_json, unwrap, wrap
from cluster.journal.writer_lock import ENDED_S, WriterLock
from experiments.journal_mark import JournalMark

VERSION = 2  # of the journals that are written; those before had no close record and no version

_TAIL = 65_536  # bytes; the last line of a journal is short


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


@dataclass(frozen=True)
class _Written:
    """How much of a journal is on the disk for certain. One assignment replaces it: a signal's handler that raises leaves no half of it."""

    size: int  # bytes
    crc: int  # of the last line
    section: Section
    last: int = 0  # number of the last record that was taken from the queue


class JournalWriter:
    """Appends records. `append` queues a record's JSON. A thread writes and fsyncs every `interval` seconds: no step waits for a disk.

    `append`, `flush` and `close` raise OSError once a write has failed, for example on a full disk. `locked`: whether others can tell that
    it still writes; False on a file system without locks.
    """

    def __init__(self, path: Path, attempt: int, interval: float = 0.5, *, trial: str | None = None, patience_s: float = ENDED_S) -> None:
        """`trial`: the key of the trial that this is the journal of, which its first record then names.

        Waits for the end of another writer. Raises JournalInUse where there is still one after `patience_s` seconds, JournalError for a
        damaged file, and OSError.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # unbuffered: after a write that failed nothing is left that closing the file could still write
        self._file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)  # noqa: SIM115 - as long as the writer
        self._lock_of_file = WriterLock(self._file.fileno())
        self._appended, self._queue = 0, deque[tuple[int, bytes]]()  # records as JSON, numbered
        self._lock = threading.Lock()  # queue
        self._disk = threading.Lock()  # file and what is written
        self._error: OSError | None = None
        self._stop = threading.Event()
        self._interval = interval
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        try:
            self._written = _Written(*self._take_over(patience_s), Section(0, attempt, trial, VERSION))
            first: Record = {"attempt": attempt, "pid": os.getpid(), "host": os.uname().nodename, "version": VERSION}
            self.append("attempt", **(first | {"trial": trial} if trial else first))
            self.flush()
            self._thread.start()
        except BaseException:
            self._stop.set()
            self._file.close()
            self._lock_of_file.release()
            raise

    def _take_over(self, patience_s: float) -> tuple[int, int]:
        """Take the file's lock, and only then cut off an incomplete last line. Returns the file's size (bytes) and the last CRC."""
        held = self._lock_of_file.hold(patience_s)
        if held is False:
            raise JournalInUse.after(patience_s, self.path, last_writer(self.path))
        self.locked = held is True
        follower = JournalFollower(self.path)
        follower.poll()
        self._file.truncate(follower.offset)
        return follower.offset, follower.checksum

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        """Queue one record. `t` is when it happened (Unix time, s), by default now.

        Raises OSError after a failed write, and TypeError or ValueError for a value that JSON has not: here, where its caller hears of it.
        """
        if self._error:
            raise self._error
        body = to_json({"kind": kind, "t": time.time() if t is None else t, **fields})
        with self._lock:
            self._appended += 1
            self._queue.append((self._appended, body))

    def flush(self) -> None:
        """Write the queued records and fsync the file. Raises OSError."""
        with self._disk:
            if self._error:
                raise self._error
            with self._lock:  # records stay in the queue until they are written, and here one that was may still be
                while self._queue and self._queue[0][0] <= self._written.last:
                    self._queue.popleft()
                queue = list(self._queue)
            if queue:
                self._write([body for _, body in queue], queue[-1][0])

    def _write(self, bodies: Sequence[bytes], last: int, *, closes: bool = False) -> None:
        """Write records behind what is written, in the place of what a call that was broken off left there. Raises OSError.

        `last`: number of the last record of the queue that is then written. `closes`: they are the close record.
        """
        crc, section, lines = self._written.crc, replace(self._written.section), []
        for body in bodies:
            line, crc = wrap(body, crc)
            lines.append(line)
            if not closes:
                section.add(body)
        section.closed = closes
        unwritten, size = memoryview(b"".join(lines)), self._written.size
        try:
            if os.fstat(self._file.fileno()).st_size > size:
                self._file.truncate(size)
            while unwritten:
                count = os.pwrite(self._file.fileno(), unwritten, size)
                unwritten, size = unwritten[count:], size + count
            os.fsync(self._file.fileno())
        except OSError as error:
            error.filename = str(self.path)  # whoever reads of it should learn of which disk it is
            self._error = error
            self._lock_of_file.release()  # nothing more is written
            raise
        self._written = _Written(size, crc, section, last)

    def close(self) -> None:
        """Write the queued records and the close record, stop the thread and close the file. Raises OSError."""
        if self._file.closed:
            self._lock_of_file.release()  # where an earlier call was broken off
            return
        try:
            self._stop.set()
            self._thread.join()
            self.flush()
            with self._disk:
                mark = self._written.section.mark
                body = to_json({"kind": "close", "t": time.time(), "records": mark.records, "checksum": mark.checksum})
                if not mark.closed:  # by a call that was broken off
                    self._write([body], self._written.last, closes=True)
        finally:
            try:
                with self._disk:  # where the above was broken off, the thread may still write
                    self._file.close()
            except OSError as error:
                raise self._error or error from None
            finally:
                self._lock_of_file.release()  # only now: some file systems write when a file is closed

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.flush()
            except (OSError, ValueError):  # kept in self._error, which the next append raises in the loop; or `close` was broken off
                return

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
            record = parse(body, self.path, self._line + 1)
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

    Nothing where there is none. Raises JournalError.
    """
    return _attempt_of(follower, follower.poll(), attempt)


def _attempt_of(follower: JournalFollower, records: list[Record], attempt: int | None) -> tuple[list[Record], Section | None]:
    for section in reversed(follower.sections):
        if attempt in (None, section.attempt):
            return records[section.start : section.start + section.records], section
    return [], None


def last_writer(path: Path) -> Writer:
    """Who began the last section of a journal, as far as it says."""
    try:
        records = JournalFollower(path).poll()
    except JournalError:
        records = []
    begun = next((record for record in reversed(records) if record["kind"] == "attempt"), {})
    return Writer(begun.get("pid"), begun.get("host"), begun.get("attempt"), begun.get("trial"))
