"""A journal on storage: segments of whole lines, written once each, since an object cannot be appended to.

`journal-a<attempt>/<part>-<number>.jsonl` holds consecutive lines of one attempt's journal on its node. Checksums run through all
segments of a part; a part is what one process wrote (the search for the largest batch, then rank 0), whole before the next begins. The
writer sends a segment again, unchanged, until the storage has it; so a reader may take each as soon as it is there.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from cluster.journal.journal import JournalError, JournalFollower, Record, decode, encode
from cluster.journal.object_store import Storage, StorageError
from cluster.trial_layout import journal_segment

INTERVAL_S = 1.0
STORAGE_LOST = 75  # exit status of a trial's process whose result the storage did not take (EX_TEMPFAIL)
PATIENCE_S = 600.0  # how long a trial that has ended waits for storage that is away


class JournalMirror:
    """Sends what a journal file grows by, in a thread of its own: no step waits for the storage, and its loss for a while only delays."""

    def __init__(self, path: Path, storage: Storage, attempt: int, part: int = 0, interval_s: float = INTERVAL_S) -> None:
        self.path, self.storage, self.attempt, self.part = path, storage, attempt, part
        self.failures = 0
        self.error: StorageError | None = None  # the last, None once the storage has taken something after it
        self._offset = self._number = 0
        self._pending = b""
        self._stop = threading.Event()
        self._interval_s = interval_s
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Send the rest, trying for so long. Raises StorageError; the journal then is whole only on this node, in `path`."""
        self._stop.set()
        self._thread.join()
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._send()
                return
            except StorageError as error:
                if time.monotonic() > deadline:
                    raise StorageError(f"{error}; the journal is whole in {self.path} on {os.uname().nodename}") from error
            time.sleep(min(self._interval_s, 5.0))

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._send()
            except StorageError:
                continue

    def _send(self) -> None:
        """Send what is pending, then what came since, until nothing is left. Raises StorageError."""
        while True:
            if not self._pending:
                self._pending = self._grown()
            if not self._pending:
                return
            try:
                self.storage.put(journal_segment(self.attempt, self.part, self._number), self._pending)
            except StorageError as error:
                self.failures += 1
                self.error = error
                raise
            self.error = None
            self._offset += len(self._pending)
            self._number += 1
            self._pending = b""

    def _grown(self) -> bytes:
        """Whole lines that are not sent yet."""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        return text[: text.rfind(b"\n") + 1]


class SegmentReader:
    """Reads one attempt's segments in order. `poll()` gives the records of those that are new."""

    def __init__(self, storage: Storage, attempt: int) -> None:
        self.storage, self.attempt = storage, attempt
        self._part = self._number = self._crc = 0

    def poll(self) -> list[Record]:
        """Raises StorageError, and JournalError for a segment that is not as it was written."""
        records: list[Record] = []
        while True:
            while (text := self._get(self._part, self._number)) is not None:
                records += self._read(text)
            if self._get(self._part + 1, 0) is None:
                return records
            if self._get(self._part, self._number) is None:  # the part was whole before the next began
                self._part, self._number, self._crc = self._part + 1, 0, 0

    def _get(self, part: int, number: int) -> bytes | None:
        return self.storage.get(journal_segment(self.attempt, part, number))

    def _read(self, text: bytes) -> list[Record]:
        where = Path(f"{self.storage.uri.partition('?')[0]}/{journal_segment(self.attempt, self._part, self._number)}")
        found, crc = [], self._crc
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            record, crc = decode(line, crc, where, number)
            found.append(record)
        if not found:
            raise JournalError(where, 1, "is empty")
        self._crc = crc
        self._number += 1
        return found


class JournalCopy:
    """The flow's copy of a trial's journal: what an attempt's segments hold, appended to the local file with its own chain of checksums.

    A copy that an earlier flow began is gone on with: lines that it has are not written twice.
    """

    def __init__(self, path: Path, storage: Storage, attempt: int) -> None:
        self.path = path
        self._reader = SegmentReader(storage, attempt)
        self._attempt = attempt
        self._have: int | None = None  # lines of this attempt that the file has; None before it was looked at
        self._crc = 0

    def fetch(self) -> None:
        """Append what is new. Raises StorageError, JournalError."""
        if self._have is None:
            self._have = self._look()
        records = self._reader.poll()
        skipped = min(self._have, len(records))
        self._have -= skipped
        if new := records[skipped:]:
            self._append(new)

    def _look(self) -> int:
        """Lines of this attempt that the file holds; cuts off a last line without its end, as a killed writer leaves it."""
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
