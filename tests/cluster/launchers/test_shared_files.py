"""A trial's files through a pool's storage, both ends: what the flow sends is what the worker finds, its data set included."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.journal.object_store import Storage
from cluster.launchers import Launch
from cluster.launchers.shared_files import SharedFiles
from cluster.pools.pool import Pool
from cluster.worker import trial_files
from experiments.trial import DataSource, Trial
from tests.contracts import make_trial


def test_a_data_set_of_this_machine_reaches_the_node_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_CACHE", str(tmp_path / "node"))
    drawn = tmp_path / "drawn"
    (drawn / "tokenizer").mkdir(parents=True)
    (drawn / "train-0.parquet").write_bytes(b"rows")
    (drawn / "tokenizer" / "tokenizer.json").write_bytes(b"{}")
    data = DataSource(uri=str(drawn), fingerprint="f1", tokenizer=str(drawn / "tokenizer"))
    trial = make_trial(tmp_path / "trial", "abcd000000000001").model_copy(update={"data": data})
    files = SharedFiles(Pool(name="p", device="cpu", address="http://h:1", storage=str(tmp_path / "store")))
    where = files.folder(trial, tmp_path / "trial")
    files.send(trial, where)
    text = Storage(where).get("trial.json")
    assert text is not None
    sent = Trial.model_validate_json(text)
    assert sent.data is not None and sent.data.uri == str(tmp_path / "store" / "data" / "f1")
    for _ in range(2):
        here = trial_files.with_local_data(sent, where).data
        assert here is not None and here.tokenizer is not None
        assert Path(here.uri).is_relative_to(tmp_path / "node") and (Path(here.uri) / "train-0.parquet").read_bytes() == b"rows"
        assert (Path(here.tokenizer) / "tokenizer.json").exists()
        (tmp_path / "store" / "data" / "f1" / "train-0.parquet").unlink(missing_ok=True)  # the second time nothing is copied
    assert trial_files.with_local_data(trial, where) == trial  # a path of the node's own stays


def test_what_the_flow_made_is_kept_beside_it(tmp_path: Path) -> None:
    files = SharedFiles(Pool(name="p", device="cpu", address="http://h:1", storage=str(tmp_path / "store")))
    trial = make_trial(tmp_path / "trial", "abcd000000000002")
    where = files.folder(trial, tmp_path / "trial")
    launch = Launch(launcher="ray_job", key=trial.key, attempt=1, id="x-a1", folder=where)
    files.fetch(launch, tmp_path / "trial", last=True)  # nothing is there yet
    assert not (tmp_path / "trial" / "result.json").exists()
    (tmp_path / "trial" / "result.json").write_text("{}")
    files.keep(launch, tmp_path / "trial")
    assert set(Storage(where).names()) == {"result.json"}
