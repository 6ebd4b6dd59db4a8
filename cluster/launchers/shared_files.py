"""A Ray job's files. The nodes and the flow share the trial's folder, or the flow copies them from the pool's storage into it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path

from cluster.journal.object_store import Storage, join
from cluster.journal.replication import JournalCopy
from cluster.launchers import Launch
from cluster.pools.pool import Pool
from cluster.trial_layout import DEVICE_STATE, JOURNAL, RESULT, STEPS, TRACE, TRIAL, attempt_result, attempt_trace
from experiments.atomic_file import atomic_write
from experiments.trial import Trial

_OF_ATTEMPT = re.compile(r"[a-z]+-a(\d+)(?:[./]|$)")  # as trial_layout.attempt_result and the others name what is of one attempt
_EVERY_S = 1.0  # shortest interval between requests for the journal of a running trial


class SharedFiles:
    """Copies a trial's inputs to the pool's storage and its files back. Methods that reach the storage raise StorageError."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._copies: dict[str, tuple[JournalCopy, float]] = {}
        self._sent: set[str] = set()

    def folder(self, trial: Trial, trial_dir: Path) -> str:
        """The trial's folder as its process sees it: a URI on a pool with storage, else a path."""
        return join(self.pool.storage, trial.sweep_id, trial.key) if self.pool.storage else str(trial_dir.resolve())

    def attempts(self, folder: str) -> set[int]:
        """The numbers of the attempts of which the pool's storage has something."""
        names = Storage(folder).names() if self.pool.storage else {}
        return {int(found[1]) for name in names if (found := _OF_ATTEMPT.match(name))}

    def storage(self, folder: str) -> Storage:
        """The trial's folder on storage."""
        return Storage(folder)

    def send(self, trial: Trial, folder: str, text: Callable[[Trial], str]) -> None:
        """Send trial.json, which is `text` of the trial, and the trial's data set if it lies on this machine. A data set is sent once."""
        if not self.pool.storage:
            return
        if trial.data is not None and "://" not in trial.data.uri:
            name = f"data/{trial.data.fingerprint}"
            if name not in self._sent:
                Storage(self.pool.storage).put_folder(Path(trial.data.uri), name)
                self._sent.add(name)
            data = trial.data.model_copy(update={"uri": join(self.pool.storage, name), "tokenizer": None})
            trial = trial.model_copy(update={"data": data})
        Storage(folder).put(TRIAL, text(trial).encode())

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        """Copy the new lines of the attempt's journal, and its result, device state and trace once they exist.

        `last`: the attempt is over. Its device state is then there even if its process was killed before it could write a result.
        """
        if not self.pool.storage or launch.folder is None:
            return
        copy, asked_at = self._copy(launch, trial_dir)
        if not last and time.monotonic() - asked_at < _EVERY_S:
            return
        result = Storage(launch.folder).get(attempt_result(launch.attempt))
        copy.fetch()  # after the result: if there is one, the journal on storage is complete
        self._copies[launch.id] = (copy, time.monotonic())
        copied = {DEVICE_STATE: DEVICE_STATE, TRACE: attempt_trace(launch.attempt)}
        for name in (DEVICE_STATE, TRACE) if result is not None else (DEVICE_STATE,) if last else ():
            text = Storage(launch.folder).get(copied[name])
            if text is not None:
                (trial_dir / name).write_bytes(text)
        if result is not None:
            atomic_write(trial_dir / RESULT, result.decode())

    def _copy(self, launch: Launch, trial_dir: Path) -> tuple[JournalCopy, float]:
        """The attempt's copy, and when it was last brought up to date (monotonic, s)."""
        assert launch.folder is not None, "the pool has storage"
        return self._copies.get(launch.id) or (JournalCopy(trial_dir / JOURNAL, Storage(launch.folder), launch.attempt), -math.inf)

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        """Send result.json, steps.parquet, and what the flow added to the journal, so that the storage holds all of the trial's files."""
        if not self.pool.storage or launch.folder is None:
            return
        self._copy(launch, trial_dir)[0].send_own()
        for name in (RESULT, STEPS):
            if (trial_dir / name).exists():
                Storage(launch.folder).put(name, (trial_dir / name).read_bytes())
