"""A journal is parsed once, and damage is found however often its sweep was looked at before. On made-up sweeps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.journal.journal import JournalFollower
from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.analysis import results, row_cache
from tasks.analysis.results import load_sweep, renew_steps
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.whole_records import whole_records
from tests.tasks.fake_sweep import Fake, make_sweep, trial_dirs

TRIALS = 4


@pytest.fixture
def sweep_dir(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three trials of two steps more each, with a watched tensor and a loss that is not finite, and one that does not fit."""
    for module in (results, row_cache):
        monkeypatch.setattr(module, "LEAST", 1)
    odd: dict[str, Any] = {"rms": lambda step: 1.0 + step, "loss": lambda step: float("nan") if step == 7 else 2.0}
    fakes = [Fake({"pool": "cpu", "dataloader_workers": at}, steps=45 + at, **(odd if at == 1 else {})) for at in range(3)]
    fakes.append(Fake({"pool": "cpu", "dataloader_workers": 3}, outcome=Outcome.DOES_NOT_FIT, reason="out of memory"))
    return make_sweep(runs_root(), fakes)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were parsed line by line."""
    found: list[Path] = []
    poll = JournalFollower.poll

    def noted(follower: JournalFollower) -> Any:
        found.append(follower.path)
        return poll(follower)

    monkeypatch.setattr(JournalFollower, "poll", noted)
    return found


def anew(sweep_dir: Path) -> list[TrialRow]:
    """As another process loads it."""
    whole_records.cache_clear()
    return list(load_sweep(sweep_dir).rows)


def told(row: TrialRow) -> dict[str, Any]:
    arrays = {"steps": row.steps, "losses": row.losses, **{f"rms.{name}": values for name, values in row.rms.items()}}
    return {**vars(row), "rms": list(row.rms), **{name: (values.dtype, values.tobytes()) for name, values in arrays.items()}}


def test_what_is_kept_is_what_was_read_and_nothing_is_parsed_again(sweep_dir: Path, parsed: list[Path]) -> None:
    first = anew(sweep_dir)
    assert {path.parent for path in parsed} == set(trial_dirs(sweep_dir)) and np.isinf(first[1].losses[6]) and first[1].rms
    parsed.clear()
    again = anew(sweep_dir)
    assert parsed == []
    assert [told(row) for row in again] == [told(row) for row in first]


@pytest.mark.parametrize("name", ["journal.jsonl", "result.json", "trial.json"])
def test_a_file_that_was_damaged_since_is_found_and_the_others_are_not_read_for_it(sweep_dir: Path, parsed: list[Path], name: str) -> None:
    anew(sweep_dir)
    parsed.clear()
    path = trial_dirs(sweep_dir)[1] / name
    data = path.read_bytes()
    place = data.index(b"cpu") if name == "trial.json" else data.index(b"2026") if b"2026" in data else len(data) // 2
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    rows = anew(sweep_dir)
    if name == "journal.jsonl":
        assert str(path) in str(rows[1].problem) and not rows[1].summary
    assert {one.parent for one in parsed} <= {path.parent}
    path.write_bytes(data)
    parsed.clear()
    assert [row.problem for row in anew(sweep_dir)] == [None] * TRIALS and parsed == []


def test_one_new_trial_is_read_alone(sweep_dir: Path, parsed: list[Path]) -> None:
    first = anew(sweep_dir)
    (sweep_dir / ".rows.parquet").unlink()
    folder = trial_dirs(sweep_dir)[2]
    away = sweep_dir.parent / "away"
    shutil.move(folder, away)
    assert [row.outcome for row in anew(sweep_dir)] == ["ok", "ok", "to do", "does_not_fit"]
    shutil.move(away, folder)
    parsed.clear()
    assert [row.outcome for row in anew(sweep_dir)] == ["ok", "ok", "ok", "does_not_fit"]
    assert {path.parent for path in parsed} == {folder}
    parsed.clear()
    assert [row.packages for row in anew(sweep_dir)] == [row.packages for row in first] and parsed == [], "kept with those before it"


@pytest.mark.parametrize("how", ["damaged", "of other code", "gone"])
def test_without_a_kept_file_that_counts_all_is_read(
    sweep_dir: Path, parsed: list[Path], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = anew(sweep_dir)
    parsed.clear()
    kept = sweep_dir / ".rows.parquet"
    if how == "damaged":
        data = kept.read_bytes()
        kept.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif how == "gone":
        kept.unlink()
    else:
        monkeypatch.setattr(row_cache, "code_digest", lambda: "0" * 16)
    assert [told(row) for row in anew(sweep_dir)] == [told(row) for row in first]
    assert {path.parent for path in parsed} == set(trial_dirs(sweep_dir))


def test_nothing_is_kept_in_a_folder_that_is_not_among_the_sweeps(sweep_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / sweep_dir.name
    shutil.copytree(sweep_dir, copy)
    before = sorted(path.name for path in copy.iterdir())
    assert len(anew(copy)) == TRIALS
    assert sorted(path.name for path in copy.iterdir()) == before


def test_steps_are_written_again_only_where_they_are_not_what_the_journal_gives(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, written = load_sweep(sweep_dir).plan, list[Path]()
    write_steps = results.write_steps

    def noted(folder: Path) -> Path:
        written.append(folder)
        return write_steps(folder)

    monkeypatch.setattr(results, "write_steps", noted)
    renew_steps(sweep_dir, plan)
    assert written == trial_dirs(sweep_dir)
    whole_records.cache_clear()
    renew_steps(sweep_dir, plan)
    assert len(written) == TRIALS, "they are as they were"
    path = trial_dirs(sweep_dir)[0] / "steps.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"x" + whole[101:])
    renew_steps(sweep_dir, plan)
    assert written[TRIALS:] == [path.parent] and path.read_bytes() == whole
