"""A record that was read in full is known again by its bytes."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.sweep import trial_record
from tasks.sweep import whole_records as whole_records_module
from tasks.sweep.plan import states
from tasks.sweep.store import SweepStore
from tasks.sweep.trial_record import checked, damage_of, keep_whole
from tasks.sweep.what_is_left import what_is_left
from tasks.sweep.whole_records import record_digest, whole_records
from tests.tasks.plan_support import make_plan, make_trial, saved

PLAN = make_plan([make_trial(1), make_trial(2), make_trial(3)])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the records that were read in full."""
    keys: list[str] = []
    read_record = trial_record.read_record

    def noted(key: str, folder: Path) -> Any:
        keys.append(key)
        return read_record(key, folder)

    monkeypatch.setattr(trial_record, "read_record", noted)
    return keys


def another_process() -> None:
    whole_records.cache_clear()
    trial_record._checked.cache_clear()


def test_a_whole_record_is_read_in_full_once_and_one_without_a_result_each_time(read: list[str]) -> None:
    store = saved(PLAN, t1=Outcome.OK, t2=Outcome.CRASHED)
    one, two, three = (trial.key for trial in PLAN.trials)
    assert len(what_is_left(store, PLAN).done) == 2 and read == [one, two, three]
    another_process()
    read.clear()
    assert len(what_is_left(store, PLAN).done) == 2 and read == [three]


def test_a_result_is_read_once_however_often_it_is_asked_for_and_again_once_it_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    store = saved(PLAN, t1=Outcome.OK, t2=Outcome.CRASHED)
    keep_whole_after_a_look(store)
    read: list[str | None] = []
    read_result = trial_record.read_result

    def noted(folder: Path, key: str | None = None) -> Any:
        read.append(key)
        return read_result(folder, key)

    monkeypatch.setattr(trial_record, "read_result", noted)
    one, two, three = PLAN.trials
    for _ in range(2):
        assert [(trial.key, result.outcome) for trial, result in what_is_left(store, PLAN).done] == [
            (one.key, Outcome.OK),
            (two.key, Outcome.CRASHED),
        ]
        assert [entry.state for entry in states(PLAN)] == ["done", "done", "to do"]
    assert read == [one.key, two.key, three.key]
    was = store.result(two.key)
    assert was is not None
    store.save_result(was.model_copy(update={"outcome": Outcome.DOES_NOT_FIT}))
    found = checked(two, store.trial_dir(two.key))
    assert found.damage is None and found.result is not None and found.result.outcome is Outcome.DOES_NOT_FIT
    assert read == [one.key, two.key, three.key, two.key]


def keep_whole_after_a_look(store: SweepStore) -> None:
    """As an earlier command leaves it."""
    what_is_left(store, PLAN)
    another_process()


def test_a_damaged_record_has_no_result() -> None:
    store = saved(PLAN, t1=Outcome.OK)
    folder = store.trial_dir(PLAN.trials[0].key)
    (folder / "journal.jsonl").write_text("{}\n")
    found = checked(PLAN.trials[0], folder)
    assert found.result is None and found.damage is not None and found.damage.path == folder / "journal.jsonl"
    assert what_is_left(store, PLAN).damaged == [PLAN.trials[0]]


def test_other_bytes_are_read_and_their_damage_is_named(read: list[str]) -> None:
    store = saved(PLAN, t1=Outcome.OK)
    trial, folder = PLAN.trials[0], store.trial_dir(PLAN.trials[0].key)
    assert damage_of(trial, folder) is None
    keep_whole(store.dir)
    another_process()
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"attempt": 1', '"attempt": 2'))
    assert "seal" in str(damage_of(trial, folder)) and read == [trial.key] * 2


@pytest.mark.parametrize("change", [lambda text: text[:-9], lambda text: text.replace('"code": "', '"code": "x'), lambda text: "[]"])
def test_a_file_that_was_changed_counts_for_nothing(read: list[str], change: Any) -> None:
    store = saved(PLAN, t1=Outcome.OK)
    what_is_left(store, PLAN)
    path = store.dir / ".whole.json"
    assert list(json.loads(path.read_text())["records"]) == [PLAN.trials[0].key]
    path.write_text(change(path.read_text()))
    another_process()
    read.clear()
    what_is_left(store, PLAN)
    assert PLAN.trials[0].key in read


def test_damaged_samples_of_a_trial_that_measured_nothing_are_named_whoever_looks_first() -> None:
    """No state of the device is made of them, so that loading the sweep alone would pass over them, and know the record as whole."""
    store = saved(PLAN, t1=Outcome.CRASHED)
    trial, folder = PLAN.trials[0], store.trial_dir(PLAN.trials[0].key)
    (folder / "device_state.jsonl").write_text('{"kind": "sample", "t": 1.0, "crc": "00000000"}\n')
    problem = load_sweep(store.dir).rows[0].problem
    assert problem is not None and "device_state.jsonl" in problem
    assert str(damage_of(trial, folder)) == problem


@pytest.mark.parametrize("library", ["numpy", "scipy"])
def test_another_version_of_what_computes_counts_as_other_code(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    before = whole_records_module.code_digest.__wrapped__()
    monkeypatch.setattr(whole_records_module, "version", lambda name: "0.0" if name == library else version(name))
    assert whole_records_module.code_digest.__wrapped__() != before


def test_a_workload_of_the_users_own_is_part_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    (tmp_path / "workloads").mkdir()
    digests = [whole_records_module.code_digest.__wrapped__()]
    for text in ("same_work = ()", 'same_work = ("image_size",)'):
        (tmp_path / "workloads" / "own.py").write_text(text)
        digests.append(whole_records_module.code_digest.__wrapped__())
    assert len({*digests}) == 3


def test_a_digest_is_of_every_file_of_the_record() -> None:
    store = saved(PLAN, t1=Outcome.OK)
    folder = store.trial_dir(PLAN.trials[0].key)
    seen = {record_digest(folder)}
    for name in ("trial.json", "launch.json", "result.json", "device_state.jsonl", "journal.jsonl"):
        with open(folder / name, "a") as file:
            file.write(" ")
        seen.add(record_digest(folder))
    assert len(seen) == 6 and None not in seen
    (folder / "result.json").unlink()
    assert record_digest(folder) is None


def test_a_file_of_any_size_counts_to_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    store = saved(PLAN, t1=Outcome.OK)
    folder = store.trial_dir(PLAN.trials[0].key)
    (folder / "journal.jsonl").write_bytes(bytes(range(256)) * 2)
    whole = record_digest(folder)
    for size in (1, 511, 512, 513):  # smaller than the journal, of its size, and larger
        monkeypatch.setattr(whole_records_module._buffer, "memory", bytearray(size))
        assert record_digest(folder) == whole
    (folder / "journal.jsonl").write_bytes(bytes(range(256)) * 2 + b"x")
    assert record_digest(folder) != whole


def test_steps_count_only_without_a_journal_that_they_could_be_made_from() -> None:
    store = saved(PLAN, t1=Outcome.OK)
    folder = store.trial_dir(PLAN.trials[0].key)
    steps, journal = folder / "steps.parquet", folder / "journal.jsonl"
    journal.write_text("")
    with_journal = record_digest(folder)
    steps.write_text("steps")
    assert record_digest(folder) == with_journal
    journal.unlink()
    with_steps = record_digest(folder)
    steps.write_text("others")
    assert len({with_journal, with_steps, record_digest(folder)}) == 3
    journal.symlink_to("nothing")
    assert record_digest(folder) is None
