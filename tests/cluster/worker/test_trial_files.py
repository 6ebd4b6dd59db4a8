"""What goes between a node and the trial's storage at the end of an attempt."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.object_store import Storage
from cluster.journal.replication import SegmentReader
from cluster.kept_files import KEPT
from cluster.worker import trial_files
from cluster.worker.measure.profile import trace_file

FILES = {"device_state.jsonl": b"state", "trace.json.gz": b"trace"}
ON_STORAGE = {"device_state.jsonl": "device_state.jsonl", "trace.json.gz": "trace-a2.json.gz"}


def run_rank_zero(config: dict[str, Any], names: set[str]) -> None:
    folder = trial_files.folder_of_rank(config)
    path = folder / "journal.jsonl"
    with JournalWriter(path, config["attempt"]) as journal, trial_files.mirror_of_rank(path, config, 0) as send:
        journal.append("note", text="it ran")
        journal.flush()
        send()
        for name in names:
            (folder / name).write_bytes(FILES[name])


@pytest.mark.parametrize("names", [{"device_state.jsonl", "trace.json.gz"}, {"device_state.jsonl"}, set()])
def test_rank_zeros_files_reach_the_driver_on_another_node(tmp_path: Path, names: set[str]) -> None:
    store = str(tmp_path / "store" / "sweep" / "key")
    config = {"out": str(tmp_path / "rank0s-node"), "store": store, "attempt": 2, "probe": None, "not_before": 0.0}
    run_rank_zero(config, names)
    assert {name for name in FILES if Storage(store).get(ON_STORAGE[name]) == FILES[name]} == names
    assert not (tmp_path / "rank0s-node" / "rank0").exists(), "everything is on the storage"

    out = tmp_path / "drivers-node"
    out.mkdir()
    trial_files.collect(argparse.Namespace(store=store, attempt=2, probe=None), out / "journal.jsonl")
    assert [note["text"] for note in read_journal(out / "journal.jsonl").notes] == ["it ran"]
    assert (out / "device_state.jsonl").exists() == ("device_state.jsonl" in names)


def test_what_was_measured_is_on_the_storage_before_a_trial_goes_on_to_what_may_end_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    config = {"out": str(tmp_path / "node"), "store": storage.uri, "attempt": 1, "probe": None, "not_before": 0.0}
    path = trial_files.folder_of_rank(config) / "journal.jsonl"
    state = path.with_name("device_state.jsonl")
    journal = JournalWriter(path, 1)
    with pytest.raises(RuntimeError, match="in its traces"), journal, trial_files.mirror_of_rank(path, config, 0) as send:
        journal.append("note", text="measured")
        journal.flush()
        send()
        assert [record["kind"] for record in SegmentReader(storage, 1).poll()] == ["attempt", "note"], "it has no state yet"
        state.write_bytes(b"so far")
        send()
        assert storage.get("device_state.jsonl") == b"so far"
        state.write_bytes(b"all of it")
        raise RuntimeError("in its traces")
    assert storage.get("device_state.jsonl") == b"all of it", "without it nobody knows whether the trial was disturbed"


def test_a_probe_and_a_trial_without_storage_send_nothing(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    config = {"out": str(tmp_path / "node"), "store": store, "attempt": 1, "probe": "{}", "not_before": 0.0}
    run_rank_zero(config, {"device_state.jsonl"})
    run_rank_zero({**config, "out": str(tmp_path / "shared"), "store": None, "probe": None}, {"device_state.jsonl"})
    assert Storage(store).get("device_state.jsonl") is None and (tmp_path / "shared" / "device_state.jsonl").exists()


HALF = (".trace.json.gz.1f2e3d4c.tmp", f".{2**31 - 1}.1f2e3d4c.trace.json.gz.json")  # of no process


@pytest.mark.parametrize("stored", [True, False])
def test_what_killed_trials_had_half_written_of_their_traces_leaves_the_node(tmp_path: Path, stored: bool) -> None:
    """On storage no flow sees it. What an interrupted storage left to be sent by hand stays, and so does what a running trial writes."""
    folders = [tmp_path / name / "rank0" for name in ("killed-a1", "running-a2", "early-a1")]
    for folder in folders:
        folder.mkdir(parents=True)
        for name in (*HALF, "trace.json.gz"):
            (folder / name).touch()
    with JournalWriter(folders[0] / "journal.jsonl", 1):
        pass
    if stored:  # another process may have its number by now: beside a journal that counts alone
        (folders[0] / f".{os.getpid()}.1f2e3d4c.trace.json.gz.json").touch()
    config = {"out": str(tmp_path / "next-a1"), "store": str(tmp_path / "store") if stored else None}
    with JournalWriter(folders[1] / "journal.jsonl", 2):
        trial_files.remove_half_traces(config)
        left = [{path.name for path in folder.iterdir()} for folder in folders]
    whole, writes = {"trace.json.gz", "journal.jsonl"}, {*HALF, "trace.json.gz", "journal.jsonl"}
    assert left == ([whole, writes, {"trace.json.gz"}] if stored else [writes, writes, {*HALF, "trace.json.gz"}])


def test_traces_of_ranks_on_another_node_than_the_journals_leave_it_once_their_processes_have_ended(tmp_path: Path) -> None:
    node = tmp_path / "other-a1"
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    with trace_file(node / "rank0" / "trace.json.gz") as written:
        written.write_text("{")
        left = written.with_name(written.name.replace(f".{os.getpid()}.", f".{ended.pid}."))
        left.write_text("{")
        trial_files.remove_half_traces({"out": str(tmp_path / "next-a1"), "store": "file:///store"})
        assert list((node / "rank0").iterdir()) == [written], "this process is in its traces"


def test_a_half_trace_that_cannot_be_removed_keeps_no_trial_from_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "killed-a1" / "rank0" / HALF[0]
    folder.mkdir(parents=True)
    trial_files.remove_half_traces({"out": str(tmp_path / "next-a1"), "store": "file:///store"})
    assert folder.exists()


def test_which_folders_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial's own is the first: it is the one that is tried."""
    out = tmp_path / "a-20260101-000000-0000" / "trials" / "0123456789abcdef"
    monkeypatch.delenv("SWEEPBENCH_POOL", raising=False)
    monkeypatch.delenv(KEPT, raising=False)
    assert trial_files.own_folders(out) == [out, tmp_path / "a-20260101-000000-0000"]
    assert trial_files.own_folders(tmp_path / "scratch" / "x") == [tmp_path / "scratch" / "x"], "on storage it is of no sweep"
    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    assert trial_files.own_folders(out) == [out, tmp_path / "a-20260101-000000-0000", tmp_path / "kept"]
