"""A trial whose files are on storage: brought to this node before it starts, sent there while and after it runs.

The journal on this node's disk, fsynced, is the truth; a thread sends it on. Where no storage is given, flow and nodes share the trial's
folder itself and nothing here does anything.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import trial_layout
from cluster.journal.object_store import Storage, StorageError, join
from cluster.journal.replication import PATIENCE_S, JournalCopy, JournalMirror
from cluster.trial_layout import RANK_ZERO, TRACE, TRIAL, attempt_result
from experiments.trial import Trial


def scratch(store: str, attempt: int) -> Path:
    """Folder of an attempt on this node: below $SWEEPBENCH_SCRATCH, else the system's temporary folder."""
    root = Path(os.environ.get("SWEEPBENCH_SCRATCH") or Path(tempfile.gettempdir()) / f"sweepbench-{os.getuid()}")
    return root / f"{hashlib.sha256(store.encode()).hexdigest()[:16]}-a{attempt}"


def trial_text(options: argparse.Namespace) -> str:
    """trial.json. Raises StorageError."""
    if not options.store:
        return str(options.trial.read_text(encoding="utf-8"))
    text = _patiently(lambda: Storage(options.store).get(TRIAL))
    if text is None:
        raise StorageError(f"{options.store}: trial.json is not there")
    return str(text.decode())


def withdrawn(options: argparse.Namespace) -> bool:
    """True if the flow stopped this attempt while it was waiting to be started."""
    name = trial_layout.withdrawn(options.attempt)
    if options.store:
        return _patiently(lambda: Storage(options.store).get(name)) is not None
    return bool((options.out / name).exists())


def folder_of_rank(config: Mapping[str, Any]) -> Path:
    """Where rank 0 writes: the trial's folder, or its own part of the scratch folder, which may be on another node than the driver's."""
    return Path(config["out"]) / RANK_ZERO if config.get("store") else Path(config["out"])


@contextmanager
def mirror(path: Path, options: argparse.Namespace, part: int) -> Iterator[None]:
    """Send the journal `path` on while the block runs, all of it by its end. Raises StorageError if that cannot be done."""
    with _mirror(path, options.store, options.attempt, part):
        yield


@contextmanager
def mirror_of_rank(path: Path, config: Mapping[str, Any], rank: int) -> Iterator[None]:
    """The same for rank 0's journal, and then its trace if there is one; other ranks write none."""
    store = config.get("store") if rank == 0 and not config["probe"] else None
    with _mirror(path, store, config["attempt"], 1 if config["not_before"] else 0):
        yield
    if store:
        trace = path.with_name(TRACE)
        if trace.exists():
            _patiently(lambda: Storage(store).put(TRACE, trace.read_bytes()))
        shutil.rmtree(path.parent, ignore_errors=True)  # all of it is on the storage now


@contextmanager
def _mirror(path: Path, store: str | None, attempt: int, part: int) -> Iterator[None]:
    if not store:
        yield
        return
    sending = JournalMirror(path, Storage(store), attempt, part)
    try:
        yield
    finally:
        sending.close()


def collect(options: argparse.Namespace, path: Path) -> None:
    """Before the result is made of it: the journal that rank 0, here or on another node, has sent."""
    if options.store and not options.probe:
        path.unlink(missing_ok=True)
        copy = JournalCopy(path, Storage(options.store), options.attempt)
        _patiently(copy.fetch)


def send_result(options: argparse.Namespace, path: Path) -> None:
    """result.json, by which the flow knows the end. Raises StorageError; the file then stays on this node."""
    if options.store:
        _patiently(lambda: Storage(options.store).put(attempt_result(options.attempt), path.read_bytes()))
        shutil.rmtree(options.out, ignore_errors=True)


def with_local_data(trial: Trial, store: str | None) -> Trial:
    """The trial with its data set on this node's disk, where the flow has put the set beside the trials. Copied once, whole."""
    if not store or trial.data is None or not trial.data.uri.startswith(_data_root(store)):
        return trial
    from filelock import FileLock

    from experiments.components.data.staging import cache_folder

    folder = cache_folder() / trial.data.fingerprint
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "_complete").exists():
            source = Storage(trial.data.uri)
            names = _patiently(source.names)
            for name in sorted(names, key=lambda name: name == "_complete"):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_patiently(lambda name=name: source.get(name)) or b"")
    tokenizer = folder / "tokenizer"
    data = trial.data.model_copy(update={"uri": str(folder), "tokenizer": str(tokenizer) if tokenizer.is_dir() else None})
    return trial.model_copy(update={"data": data})


def _data_root(store: str) -> str:
    """<storage>/data of a trial's folder <storage>/<sweep>/<key>."""
    return join(store.partition("?")[0].rsplit("/", 2)[0], "data") + "/"


def _patiently(work: Any) -> Any:
    """Do `work`, again and again while the storage is away. Raises StorageError after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except StorageError as error:
            if time.monotonic() > deadline:
                raise
            print(f"{error}; trying again", file=sys.stderr, flush=True)
            time.sleep(2.0)
