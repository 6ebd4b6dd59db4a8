"""What goes between a node and the trial's storage at the end of an attempt."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.object_store import Storage
from cluster.worker import trial_files

FILES = {"device_state.jsonl": b"state", "trace.json.gz": b"trace"}


def run_rank_zero(config: dict[str, Any], names: set[str]) -> None:
    folder = trial_files.folder_of_rank(config)
    path = folder / "journal.jsonl"
    with JournalWriter(path, config["attempt"]) as journal, trial_files.mirror_of_rank(path, config, 0):
        journal.append("note", text="it ran")
        journal.flush()
        for name in names:
            (folder / name).write_bytes(FILES[name])


@pytest.mark.parametrize("names", [{"device_state.jsonl", "trace.json.gz"}, {"device_state.jsonl"}, set()])
def test_rank_zeros_files_reach_the_driver_on_another_node(tmp_path: Path, names: set[str]) -> None:
    store = str(tmp_path / "store" / "sweep" / "key")
    config = {"out": str(tmp_path / "rank0s-node"), "store": store, "attempt": 2, "probe": None, "not_before": 0.0}
    run_rank_zero(config, names)
    assert {name for name in FILES if Storage(store).get(name) == FILES[name]} == names
    assert not (tmp_path / "rank0s-node" / "rank0").exists(), "everything is on the storage"

    out = tmp_path / "drivers-node"
    out.mkdir()
    trial_files.collect(argparse.Namespace(store=store, attempt=2, probe=None), out / "journal.jsonl")
    assert [note["text"] for note in read_journal(out / "journal.jsonl").notes] == ["it ran"]
    assert (out / "device_state.jsonl").exists() == ("device_state.jsonl" in names)


def test_a_probe_and_a_trial_without_storage_send_nothing(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    config = {"out": str(tmp_path / "node"), "store": store, "attempt": 1, "probe": "{}", "not_before": 0.0}
    run_rank_zero(config, {"device_state.jsonl"})
    run_rank_zero({**config, "out": str(tmp_path / "shared"), "store": None, "probe": None}, {"device_state.jsonl"})
    assert Storage(store).get("device_state.jsonl") is None and (tmp_path / "shared" / "device_state.jsonl").exists()
