"""A trial's files through a pool's storage, both ends: what the flow sends is what the worker finds, its data set included."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.journal.after_window import complete_measured
from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.lines import encode
from cluster.journal.object_store import Storage
from cluster.journal.replication import JournalMirror
from cluster.launchers import Launch, shared_files
from cluster.launchers.shared_files import SharedFiles
from cluster.pools.pool import Pool
from cluster.trial_layout import journal_segment
from cluster.worker import trial_files
from experiments.trial import DataSource, Outcome, Trial
from tests.contracts import make_trial
from tests.measured_support import KEY, write_measured


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
    files.send(trial, where, Trial.model_dump_json)
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


def pool(folder: Path | None) -> Pool:
    return Pool(name="p", device="cpu", address="http://h:1", storage=str(folder) if folder else None)


def test_a_data_set_is_sent_once_for_all_trials_of_a_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Storage, "put_folder", lambda storage, folder, name: asked.append(f"{storage.uri} {folder} {name}"))
    files = SharedFiles(pool(tmp_path / "store"))
    for number, (uri, fingerprint) in enumerate([("/d/one", "f1"), ("/d/one", "f1"), ("/d/two", "f2"), ("hf://hub/set", "f3")]):
        data = DataSource(uri=uri, fingerprint=fingerprint, tokenizer="/d/tokenizer")
        trial = make_trial(tmp_path / "trial", f"abcd00000000001{number}").model_copy(update={"data": data})
        where = files.folder(trial, tmp_path / "trial")
        assert where == f"{tmp_path}/store/{trial.sweep_id}/{trial.key}"
        files.send(trial, where, Trial.model_dump_json)
        sent = Trial.model_validate_json(Storage(where).get("trial.json") or b"")
        if uri.startswith("/"):
            assert sent == trial.model_copy(
                update={"data": DataSource(uri=f"{tmp_path}/store/data/{fingerprint}", fingerprint=fingerprint)}
            )
        else:
            assert sent == trial, "each node reads a hub itself"
    assert asked == [f"{tmp_path}/store /d/one data/f1", f"{tmp_path}/store /d/two data/f2"]


def test_a_pool_that_shares_the_trials_folder_needs_no_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(tmp_path / "trial", "abcd000000000003")
    files = SharedFiles(pool(None))
    monkeypatch.chdir(tmp_path)
    assert files.folder(trial, Path("trial")) == str(tmp_path / "trial"), "a node may start in another folder"
    before = sorted(tmp_path.rglob("*"))
    launch = Launch(launcher="ray_job", key=trial.key, attempt=1, id="x-a1", folder=str(tmp_path / "trial"))
    files.send(trial, str(tmp_path / "elsewhere"), Trial.model_dump_json)
    files.fetch(launch, tmp_path / "trial", last=True)
    files.keep(launch, tmp_path / "trial")
    files = SharedFiles(pool(tmp_path / "store"))
    launch = launch.model_copy(update={"folder": None})  # of a flow from before the pool had storage
    files.fetch(launch, tmp_path / "trial", last=True)
    files.keep(launch, tmp_path / "trial")
    assert sorted(tmp_path.rglob("*")) == before


class Node:
    """A trial's process on another machine: what it has written to the storage by now."""

    def __init__(self, root: Path) -> None:
        self.trial = make_trial(root / "trial", "abcd000000000004")
        self.here = root / "trial"
        self.files = SharedFiles(pool(root / "store"))
        self.launch = Launch(
            launcher="ray_job", key=self.trial.key, attempt=2, id="x-a2", folder=self.files.folder(self.trial, root / "trial")
        )
        self.storage = Storage(str(self.launch.folder))
        self._crc = self._number = 0

    def write(self, step: int) -> None:
        records = [{"kind": "attempt", "attempt": 2, "t": 0.0}] if self._number == 0 else []
        text = b""
        for record in [*records, {"kind": "step", "step": step}]:
            line, self._crc = encode(record, self._crc)
            text += line
        self.storage.put(journal_segment(2, 0, self._number), text)
        self._number += 1

    def steps(self) -> list[int]:
        return [step["step"] for step in read_journal(self.here / "journal.jsonl").steps]


def test_a_journal_is_asked_for_once_a_second_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, clock = Node(tmp_path), [100.0]
    monkeypatch.setattr(shared_files, "time", type("Time", (), {"monotonic": staticmethod(lambda: clock[0])}))
    node.write(1)
    node.files.fetch(node.launch, node.here)
    assert node.steps() == [1]
    node.write(2)
    clock[0] = 100.9
    node.files.fetch(node.launch, node.here)
    assert node.steps() == [1]
    clock[0] = 101.0
    node.files.fetch(node.launch, node.here)
    assert node.steps() == [1, 2]
    node.write(3)
    node.files.fetch(node.launch, node.here)
    assert node.steps() == [1, 2]
    node.files.fetch(node.launch, node.here, last=True)
    assert node.steps() == [1, 2, 3]


def test_the_state_of_an_attempt_that_was_killed_is_there_without_a_result(tmp_path: Path) -> None:
    """Where the attempt counts, since it had been measured, it tells whether it was disturbed."""
    node = Node(tmp_path)
    node.write(1)
    node.storage.put("device_state.jsonl", b"state")
    node.files.fetch(node.launch, node.here)
    assert not (node.here / "device_state.jsonl").exists(), "the attempt still runs"
    node.files.fetch(node.launch, node.here, last=True)
    assert (node.here / "device_state.jsonl").read_bytes() == b"state" and not (node.here / "result.json").exists()


def test_with_a_result_all_of_the_journal_and_the_trace_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial ends while it is looked for: its last step must not be missing where its result is not."""
    node = Node(tmp_path)
    node.storage.put("result-a1.json", b"of an earlier attempt")
    node.storage.put("trace-a1.json.gz", b"of an earlier attempt")
    node.write(1)
    node.files.fetch(node.launch, node.here, last=True)
    assert not (node.here / "result.json").exists() and not (node.here / "trace.json.gz").exists()

    real = Storage.get

    def get(storage: Storage, name: str) -> bytes | None:
        if name == journal_segment(2, 1, 0) and real(storage, "result-a2.json") is None:  # all segments were read
            node.write(2)
            node.storage.put("trace-a2.json.gz", b"trace")
            node.storage.put("device_state.jsonl", b"state")
            node.storage.put("result-a2.json", b'{"of": "\xc3\xa4"}')
            return None
        return real(storage, name)

    monkeypatch.setattr(Storage, "get", get)
    node.files.fetch(node.launch, node.here, last=True)
    assert not (node.here / "result.json").exists()
    published: list[bool] = []
    publish = shared_files.atomic_write
    monkeypatch.setattr(
        shared_files, "atomic_write", lambda *given: published.append((node.here / "trace.json.gz").exists()) or publish(*given)
    )
    node.files.fetch(node.launch, node.here, last=True)
    assert node.steps() == [1, 2] and (node.here / "trace.json.gz").read_bytes() == b"trace"
    assert (node.here / "device_state.jsonl").read_bytes() == b"state"
    assert (node.here / "result.json").read_text() == '{"of": "ä"}' and published == [True]


def test_a_trial_without_a_trace_has_its_result(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(1)
    node.storage.put("trace-a1.json.gz", b"of an earlier attempt")
    node.storage.put("result-a2.json", b"{}")
    node.files.fetch(node.launch, node.here)
    assert (node.here / "result.json").exists() and not (node.here / "trace.json.gz").exists()


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
    (tmp_path / "trial" / "steps.parquet").write_bytes(b"rows")
    (tmp_path / "trial" / "result.json").write_text("{2}")
    files.keep(launch, tmp_path / "trial")
    assert Storage(where).get("steps.parquet") == b"rows" and Storage(where).get("result.json") == b"{2}"


@pytest.mark.parametrize("same_flow", [True, False])
def test_the_section_by_which_the_flow_closed_a_journal_is_on_the_storage_too(tmp_path: Path, same_flow: bool) -> None:
    """Another machine, which reads from the storage, sees the same journal, and sees it closed."""
    files = SharedFiles(Pool(name="p", device="cpu", address="http://h:1", storage=str(tmp_path / "store")))
    launch = Launch(launcher="ray_job", key=KEY, attempt=1, id="x-a1", folder=str(tmp_path / "store" / "s" / KEY))
    storage, here, there = Storage(str(launch.folder)), tmp_path / "here", tmp_path / "there"
    write_measured(tmp_path / "node" / "journal.jsonl")
    JournalMirror(tmp_path / "node" / "journal.jsonl", storage, 1).close()
    files.fetch(launch, here, last=True)
    files.keep(launch, here)
    assert set(storage.names()) == {"journal-a1/0-00000000.jsonl"}, "the flow has added nothing"
    assert complete_measured(here / "journal.jsonl", 1, KEY, Outcome.INFRA, "worker lost")
    later = files if same_flow else SharedFiles(files.pool)
    for _ in range(2):
        later.keep(launch, here)
        assert set(storage.names()) == {"journal-a1/0-00000000.jsonl", "journal-a1/1-00000000.jsonl"}
    SharedFiles(files.pool).fetch(launch, there, last=True)
    assert (there / "journal.jsonl").read_bytes() == (here / "journal.jsonl").read_bytes()
    found = read_journal(there / "journal.jsonl", 1, KEY)
    assert found.mark is not None and found.mark.closed and found.notes[-1]["text"].endswith("worker lost")


def test_a_process_that_still_writes_segments_has_the_last_word(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(1)
    node.files.fetch(node.launch, node.here)
    JournalWriter(node.here / "journal.jsonl", 2).close()
    node.write(2)
    node.files.keep(node.launch, node.here)
    assert not [name for name in node.storage.names() if name.startswith("journal-a2/1-")]
