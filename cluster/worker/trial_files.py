"""A trial's files on storage: copied to this node before the trial starts, and back while it runs and when it ends.

The fsynced journal on this node's disk is authoritative; a thread copies it to storage. Without storage the flow and the nodes share the
trial's folder, and these functions use that folder or do nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cluster import trial_layout
from cluster.journal.object_store import Storage, StorageError, join
from cluster.journal.replication import PATIENCE_S, JournalCopy, JournalMirror
from cluster.journal.writer_lock import writer_ended
from cluster.kept_files import kept_root
from cluster.trial_layout import DEVICE_STATE, JOURNAL, RANK_ZERO, TRACE, TRIAL, TRIALS, attempt_result, attempt_trace
from experiments.json_file import parse_model
from experiments.trial import Trial

AGAIN = "remove it, and `sweep resume` writes it again"


def scratch(store: str, attempt: int) -> Path:
    """An attempt's folder on this node, below $SWEEPBENCH_SCRATCH or else the system's temporary folder."""
    root = Path(os.environ.get("SWEEPBENCH_SCRATCH") or Path(tempfile.gettempdir()) / f"sweepbench-{os.getuid()}")
    return root / f"{hashlib.sha256(store.encode()).hexdigest()[:16]}-a{attempt}"


def read_trial(options: argparse.Namespace) -> Trial:
    """The trial in trial.json. Raises DamagedFile; OSError or StorageError where there is no such file."""
    if not options.store:
        return parse_model(options.trial.read_bytes(), Trial, options.trial, AGAIN)
    data = _retry(lambda: Storage(options.store).get(TRIAL))
    if data is None:
        raise StorageError(f"{options.store}: trial.json is not there")
    return parse_model(data, Trial, Path(f"{options.store.partition('?')[0]}/{TRIAL}"), AGAIN)


def is_withdrawn(options: argparse.Namespace) -> bool:
    """True if the flow stopped this attempt before it started. Raises StorageError."""
    name = trial_layout.withdrawal(options.attempt)
    if options.store:
        return _retry(lambda: Storage(options.store).get(name)) is not None
    return bool((options.out / name).exists())


def folder_of_rank(config: Mapping[str, Any]) -> Path:
    """Rank 0's folder: the trial's, or with storage a part of the scratch folder on rank 0's node, which may not be the driver's."""
    return Path(config["out"]) / RANK_ZERO if config.get("store") else Path(config["out"])


def remove_half_traces(config: Mapping[str, Any]) -> None:
    """Remove from the scratch folders of this node what killed processes had written of their traces: each may be hundreds of MB, and the
    flow, which tidies a shared folder, does not see these. One whose trial still writes its journal stays; on a node without rank 0, whose
    journal is elsewhere, one whose process runs. Raises nothing of the disk's."""
    if not config.get("store"):
        return
    for part in Path(config["out"]).parent.glob(f"*/{RANK_ZERO}/.*{TRACE}*"):
        with suppress(OSError):
            journal = part.with_name(JOURNAL)
            if writer_ended(journal, 0.0) if journal.exists() else not _process_runs(part):
                part.unlink(missing_ok=True)


def _process_runs(part: Path) -> bool:
    """Whether the process that the name of a rank's trace begins with runs on this node (`trace_file` in measure/profile.py)."""
    process = part.name.split(".")[1]
    return process.isdecimal() and psutil.pid_exists(int(process))


def own_folders(out: Path) -> list[Path]:
    """Folders that are ours and not the workload's: the trial's, its sweep's, and where lies what later trials use again."""
    sweep = [out.parent.parent] if out.parent.name == TRIALS else []
    kept = kept_root()
    return [out, *sweep, *([kept] if kept else [])]


@contextmanager
def mirror(path: Path, options: argparse.Namespace, part: int) -> Iterator[None]:
    """Copy the journal at `path` to storage while the block runs, completely by its end. Raises StorageError."""
    with _mirror(path, options.store, options.attempt, part):
        yield


@contextmanager
def mirror_of_rank(path: Path, config: Mapping[str, Any], rank: int) -> Iterator[Callable[[], object]]:
    """As `mirror`, for rank 0's journal, and at the end its device state and its trace. Raises StorageError.

    Yields what sends journal and device state as they are now, and waits no longer than FLUSH_S for unreachable storage. Does nothing on
    other ranks and in probes.
    """
    store = config.get("store") if rank == 0 and not config["probe"] else None
    try:
        with _mirror(path, store, config["attempt"], 1 if config["not_before"] else 0) as copier:
            yield partial(copier.flush, also={DEVICE_STATE: path.with_name(DEVICE_STATE)}) if copier else _nothing
    except BaseException:
        if store:
            _send_state(Storage(store), path)  # the trial may have been measured before it failed
        raise
    if store:
        for name, kept in ((DEVICE_STATE, DEVICE_STATE), (TRACE, attempt_trace(config["attempt"]))):
            if (file := path.with_name(name)).exists():
                _retry(lambda file=file, kept=kept: Storage(store).put(kept, file.read_bytes()))
        shutil.rmtree(path.parent, ignore_errors=True)  # everything is on the storage now


def _nothing() -> None:
    """There is no storage to send anything to."""


def _send_state(storage: Storage, journal: Path) -> None:
    """Send the device's state so far, if the storage can be reached: without it nobody knows whether the trial was disturbed."""
    with suppress(StorageError, OSError):
        storage.put(DEVICE_STATE, journal.with_name(DEVICE_STATE).read_bytes())


@contextmanager
def _mirror(path: Path, store: str | None, attempt: int, part: int) -> Iterator[JournalMirror | None]:
    if not store:
        yield None
        return
    copier = JournalMirror(path, Storage(store), attempt, part)
    try:
        yield copier
    finally:
        copier.close()


def collect(options: argparse.Namespace, path: Path) -> None:
    """Fetch rank 0's journal from storage to `path`, and its device state beside it: the result is computed from them.

    Rank 0 may be on another node.
    """
    if options.store and not options.probe:
        path.unlink(missing_ok=True)
        copy = JournalCopy(path, Storage(options.store), options.attempt)
        _retry(copy.fetch)
        state = _retry(lambda: Storage(options.store).get(DEVICE_STATE))
        if state is not None:
            path.with_name(DEVICE_STATE).write_bytes(state)


def send_result(options: argparse.Namespace, path: Path) -> None:
    """Send result.json, which tells the flow that the attempt has ended. Raises StorageError; the file then stays on this node."""
    if options.store:
        _retry(lambda: Storage(options.store).put(attempt_result(options.attempt), path.read_bytes()))
        shutil.rmtree(options.out, ignore_errors=True)


def with_local_data(trial: Trial, store: str | None) -> Trial:
    """The trial with its data set on this node's disk, if the flow has put the set on the trial's storage. Copies a set once."""
    if not store or trial.data is None or not trial.data.uri.startswith(_data_root(store)):
        return trial
    from filelock import FileLock

    from experiments.components.data.staging import cache_folder

    folder = cache_folder() / trial.data.fingerprint
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "_complete").exists():
            source = Storage(trial.data.uri)
            names = _retry(source.names)
            for name in sorted(names, key=lambda name: name == "_complete"):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_retry(lambda name=name: source.get(name)) or b"")
    tokenizer = folder / "tokenizer"
    data = trial.data.model_copy(update={"uri": str(folder), "tokenizer": str(tokenizer) if tokenizer.is_dir() else None})
    return trial.model_copy(update={"data": data})


def _data_root(store: str) -> str:
    """<storage>/data/ for a trial's folder <storage>/<sweep>/<key>."""
    return join(store.partition("?")[0].rsplit("/", 2)[0], "data") + "/"


def _retry(work: Any) -> Any:
    """The result of `work`, retried while the storage is unreachable. Raises StorageError after PATIENCE_S seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except StorageError as error:
            if time.monotonic() > deadline:
                raise
            print(f"{error}; trying again", file=sys.stderr, flush=True)
            time.sleep(2.0)
