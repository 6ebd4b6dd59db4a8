"""Imports on disk: what is written, what is refused, and that no sweep's code takes one for a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.config.errors import ConfigError, DamagedFile
from tasks.imports.store import find_imported, import_files, list_imported, read_imported
from tasks.report.compare_sweeps import CompareError, compare
from tasks.sweep.find_sweep import find_sweep, newest_sweep
from tasks.sweep.store import StoreError, SweepStore, list_sweeps, readable_plans
from tests.tasks.imports.others import mlperf, optimum, written


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_what_was_read_and_the_files_themselves_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "result_0.txt", mlperf())
    imported = import_files([path])
    folder = SweepStore(imported.sweep_id).dir
    kept = json.loads((folder / "imported.json").read_text())
    assert (kept["measured_by"], kept["origin"], kept["schema_version"]) == ("others", "mlperf", 1) and "seal" in kept
    assert (folder / "originals" / "result_0.txt").read_bytes() == path.read_bytes()
    assert find_imported(imported.sweep_id) == read_imported(imported.sweep_id) == imported
    assert imported.sweep_id.startswith("mlperf-") and list_imported() == [imported.sweep_id]
    assert [(one.read_from, one.size) for one in imported.originals] == [(str(path), path.stat().st_size)]


def test_it_is_no_sweep_to_whatever_compares_or_learns_from_sweeps(tmp_path: Path) -> None:
    sweep_id = import_files([written(tmp_path, "benchmark.json", optimum())]).sweep_id
    assert list_sweeps() == [] and list(readable_plans()) == []
    with pytest.raises(StoreError, match="there is no sweep yet"):
        newest_sweep()
    for load in (SweepStore(sweep_id).load_plan, lambda: find_sweep(sweep_id)):
        with pytest.raises(StoreError, match=rf"{sweep_id} was imported: others measured it, .* compared with none; `sweep show"):
            load()
    folder = SweepStore(sweep_id).dir
    for sides in ((folder, tmp_path), (tmp_path, folder)):
        with pytest.raises(CompareError, match=rf"{sweep_id} was imported: others measured it, under conditions that nobody here knows"):
            compare(*sides)


def test_files_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{run}/result.txt", mlperf(minutes=minutes)) for run, minutes in (("a", 5), ("b", 6))]
    imported = import_files(paths)
    assert (
        [original.name for original in imported.originals]
        == [result.file for result in imported.results]
        == ["1-result.txt", "2-result.txt"]
    )


def test_nothing_is_written_unless_all_can_be_read(tmp_path: Path, runs: Path) -> None:
    good, bad = written(tmp_path, "good.txt", mlperf()), written(tmp_path, "bad.txt", "nothing\n")
    for paths, said in (
        ([good, bad], "bad.txt: is no log"),
        ([good, tmp_path / "none"], "none: cannot be read .No such file"),
        ([good, tmp_path], "cannot be read .Is a directory"),
        ([good, good], r"good\.txt: the same content is that of .*good\.txt"),
    ):
        with pytest.raises(ConfigError, match=said):
            import_files(paths)
    assert not runs.exists()


def test_a_file_is_imported_once(tmp_path: Path) -> None:
    path = written(tmp_path, "result_0.txt", mlperf())
    sweep_id = import_files([path]).sweep_id
    with pytest.raises(ConfigError, match=f"the same content was imported as {sweep_id}; leave it out"):
        import_files([written(tmp_path, "copy.txt", mlperf())])


def test_damage_is_named(tmp_path: Path) -> None:
    imported = import_files([written(tmp_path, "result_0.txt", mlperf())])
    folder = SweepStore(imported.sweep_id).dir
    (folder / "originals" / "result_0.txt").write_text("other")
    assert read_imported(imported.sweep_id) == imported
    with pytest.raises(DamagedFile, match=r"originals/result_0\.txt is not as it was imported; remove the folder"):
        find_imported(imported.sweep_id)
    record = folder / "imported.json"
    record.write_text(record.read_text().replace('"others"', '"us"'))
    with pytest.raises(DamagedFile, match=r"imported\.json"):
        read_imported(imported.sweep_id)
    assert find_imported("mlperf-20260101-000000-0000") is None
