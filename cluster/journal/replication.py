"""A journal on storage, in segments: an object store cannot append, so each segment is written once.

`journal-a<attempt>/<part>-<number>.jsonl` holds consecutive complete lines of one attempt's journal. A part is what one process wrote: the
search for the largest batch, then rank 0. The chain of CRCs runs through all segments of a part, and a part is complete before the next
one begins. The writer resends a segment unchanged until the storage has it, so a reader may take each segment as soon as it appears.
The last part may be the flow's: the section by which it closed, in its copy, the journal of a trial that was measured and could not.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalFollower
from cluster.journal.lines import Record, decode, encode
from cluster.journal.object_store import Storage, StorageError
from cluster.trial_layout import journal_segment

INTERVAL_S = 1.0
STORAGE_LOST = 75  # exit status of a trial whose result could not be stored (EX_TEMPFAIL)
FLUSH_S = 10.0  # how long a trial that goes on waits for unreachable storage
PATIENCE_S = 600.0  # how long a trial that has ended waits for unreachable storage


@dataclass(frozen=True)
class _Flush:
    """What a caller waits for. `also`: name on the storage -> file."""

    also: Mapping[str, Path]
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class _Sent:
    """How far a journal was sent. One assignment replaces it: what a signal's handler raises leaves no half of it."""

    offset: int = 0  # bytes
    segments: int = 0
    pending: bytes = b""  # the next segment, which may have been sent: it must not change any more


class JournalMirror:
    """Copies a growing journal file to storage, in a thread. No step waits for the storage, and an outage only delays the copy."""

    def __init__(self, path: Path, storage: Storage, attempt: int, part: int = 0, interval_s: float = INTERVAL_S) -> None:
        self.path, self.storage, self.attempt, self.part = path, storage, attempt, part
        self.failures = 0
        self.error: StorageError | None = None  # the last one; None after a write that succeeded
        self._sent = _Sent()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._flushes: list[_Flush] = []  # that were asked for and are not done
        self._sending = threading.Lock()
        self._interval_s = interval_s
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def flush(self, patience_s: float = FLUSH_S, also: Mapping[str, Path] | None = None) -> bool:
        """Send what the journal has so far, and then the files of `also` (name on the storage -> file; those that can be read).

        Waits for at most `patience_s` seconds, also for a storage that does not answer: the thread sends. Whether all was sent; what was
        not follows later.
        """
        flush = _Flush(also or {})
        self._flushes.append(flush)
        self._wake.set()
        return flush.done.wait(patience_s)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Send the rest, retrying for `patience_s` seconds. Raises StorageError; then only `path` on this node is complete."""
        whole = f"the journal is whole in {self.path} on {os.uname().nodename}"
        deadline = time.monotonic() + patience_s
        self._stop.set()
        self._wake.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            raise StorageError(f"storage {self.storage.uri.partition('?')[0]}: does not answer; {whole}")
        while True:
            try:
                self._send()
                return
            except StorageError as error:
                if time.monotonic() > deadline:
                    raise StorageError(f"{error}; {whole}") from error
            time.sleep(min(self._interval_s, 5.0))

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            flushes = list(self._flushes)
            with suppress(StorageError, OSError):  # of a journal that cannot be read: `close` raises it
                self._send()
                for flush in flushes:
                    self._send_also(flush)

    def _send_also(self, flush: _Flush) -> None:
        """Send the files that were to follow the journal. Raises StorageError."""
        for name, path in flush.also.items():
            with suppress(OSError):  # it has not been written yet, or is gone
                self.storage.put(name, path.read_bytes())
        self._flushes.remove(flush)
        flush.done.set()

    def _send(self) -> None:
        """Send the pending segment, then new lines, until everything is sent. Raises StorageError."""
        with self._sending:
            while True:
                if not self._sent.pending:
                    self._sent = replace(self._sent, pending=self._new_lines())
                sent = self._sent
                if not sent.pending:
                    return
                try:
                    self.storage.put(journal_segment(self.attempt, self.part, sent.segments), sent.pending)
                except StorageError as error:
                    self.failures += 1
                    self.error = error
                    raise
                self.error = None
                self._sent = _Sent(sent.offset + len(sent.pending), sent.segments + 1)

    def _new_lines(self) -> bytes:
        """Complete lines that have not been sent yet."""
        with open(self.path, "rb") as file:
            file.seek(self._sent.offset)
            text = file.read()
        return text[: text.rfind(b"\n") + 1]


class SegmentReader:
    """Reads one attempt's segments in order. `poll()` returns the records of new segments, each once, also where a call between failed."""

    def __init__(self, storage: Storage, attempt: int) -> None:
        self.storage, self.attempt = storage, attempt
        self._part = self._number = self._crc = 0
        self._found: list[Record] = []  # read, and not returned yet
        self.records = 0  # returned so far

    def poll(self) -> list[Record]:
        """New records. Raises StorageError, and JournalError for a segment that was changed after it was written."""
        while True:
            while (text := self._get(self._part, self._number)) is not None:
                self._found += self._read(text)
            if self._get(self._part + 1, 0) is None:
                records, self._found = self._found, []
                self.records += len(records)
                return records
            if self._get(self._part, self._number) is None:  # the part was whole before the next began
                self._part, self._number, self._crc = self._part + 1, 0, 0

    @property
    def next_part(self) -> int:
        """The number of the part after all that was read."""
        return self._part + 1 if self._number else self._part

    def _get(self, part: int, number: int) -> bytes | None:
        return self.storage.get(journal_segment(self.attempt, part, number))

    def _read(self, text: bytes) -> list[Record]:
        where = Path(f"{self.storage.uri.partition('?')[0]}/{journal_segment(self.attempt, self._part, self._number)}")
        records, crc = [], self._crc
        for number, line in enumerate(io.BytesIO(text), 1):  # cut at newlines alone
            record, crc = decode(line, crc, where, number)
            records.append(record)
        if not records:
            raise JournalError(where, 1, "is empty")
        self._crc = crc
        self._number += 1
        return records


class JournalCopy:
    """The flow's copy of a trial's journal: the records of an attempt's segments, appended to a local file with its own chain of CRCs.

    It continues a copy that an earlier flow began, and does not write a line twice.
    """

    def __init__(self, path: Path, storage: Storage, attempt: int) -> None:
        self.path = path
        self._reader = SegmentReader(storage, attempt)
        self._attempt = attempt
        self._copied: int | None = None  # lines of this attempt in the file; None before the first fetch
        self._crc = 0

    def fetch(self) -> None:
        """Append the new records. Raises StorageError, JournalError, and OSError of a full disk; the next call then goes on."""
        try:
            if self._copied is None:
                self._copied = self._count_copied()
            records = self._reader.poll()
            skipped = min(self._copied, len(records))
            if new := records[skipped:]:
                self._append(new)
            self._copied -= skipped
        except (StorageError, JournalError):  # nothing was taken from the reader
            raise
        except BaseException:  # some of them may be in the file, also where a signal broke it off: count them when it can be read
            self._reader, self._copied = SegmentReader(self._reader.storage, self._attempt), None
            raise

    def send_own(self) -> None:
        """Send the records that were added to the copy itself, as a part of their own, unless the storage has them.

        Once they are there, or where a process of the trial still writes segments, it sends nothing. Raises StorageError and JournalError.
        """
        reader, read_before = self._reader, self._reader.records
        if reader.poll() and read_before:
            return
        lines, crc = [], 0
        for record in self._own_records()[reader.records :]:
            line, crc = encode(record, crc)
            lines.append(line)
        if lines:
            reader.storage.put(journal_segment(self._attempt, reader.next_part, 0), b"".join(lines))

    def _own_records(self) -> list[Record]:
        """All records of this attempt in the file."""
        attempt, own = 0, list[Record]()
        for record in JournalFollower(self.path).poll():
            attempt = record["attempt"] if record["kind"] == "attempt" else attempt
            own += [record] * (attempt == self._attempt)
        return own

    def _count_copied(self) -> int:
        """Number of lines of this attempt in the file. Cuts off an incomplete last line, which a killed writer leaves."""
        follower = JournalFollower(self.path)
        count = attempt = 0
        for record in follower.poll():
            if record["kind"] == "attempt" and record["attempt"] != attempt:
                attempt, count = record["attempt"], 0
            count += 1
        self._crc = follower.checksum
        if self.path.exists():
            os.truncate(self.path, follower.offset)
        return count if attempt == self._attempt else 0

    def _append(self, records: list[Record]) -> None:
        lines = []
        for record in records:
            line, self._crc = encode(record, self._crc)
            lines.append(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
