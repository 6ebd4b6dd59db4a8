from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cluster.journal.journal import JournalWriter, read_journal
from experiments.summary import NAMES
from experiments.trial import Outcome
from tasks.analysis.results import ResultsError, load_sweep, load_trial, read_results, write_results, write_steps
from tests.tasks.fake_sweep import WARMUP, Fake, make_sweep, trial_dirs


def axes(workers: int = 0, **more: object) -> dict[str, object]:
    return {"pool": "cpu", "model": "base", "dataloader_workers": workers, **more}


@pytest.fixture
def sweep_dir(tmp_path: Path) -> Path:
    return make_sweep(
        tmp_path,
        [
            Fake(axes(0)),
            Fake(axes(1), outcome=Outcome.DOES_NOT_FIT, reason="out of memory: 80 GiB"),
            Fake(axes(2), outcome=None),
        ],
    )


def test_steps_parquet_holds_every_step_and_gives_the_same_summary_without_the_journal(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    before = load_trial(folder)
    path = write_steps(folder)
    table = pq.read_table(path)
    assert table.num_rows == 60
    assert table.column("measured").to_pylist().count(False) == WARMUP
    journal = read_journal(folder / "journal.jsonl")
    assert table.column("total_s").to_pylist() == [record["total_s"] for record in journal.steps]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    (folder / "journal.jsonl").unlink()
    after = load_trial(folder)
    assert after.summary == before.summary
    assert after.summary["throughput"] == pytest.approx(100, rel=0.02)
    assert after.environment["torch"] == "2.13.0"
    assert np.array_equal(after.losses, before.losses)
    assert not list(folder.glob("*.tmp"))


def test_a_journal_that_went_on_wins_over_an_older_parquet(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    write_steps(folder)
    (folder / "result.json").unlink()
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        journal.append("step", step=1, measured=True, loss=9.0, samples=8, total_s=1.0)
    assert load_trial(folder).losses.tolist() == [9.0]


def test_steps_of_a_later_attempt_are_not_the_published_results(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        journal.append("step", step=1, measured=True, loss=9.0, samples=8, total_s=1.0)
    row = load_trial(folder)
    assert row.outcome == "ok"
    assert row.losses.size == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_parquet_is_named_with_its_remedy(sweep_dir: Path, damage: str) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = write_steps(folder)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[200] ^= 0xFF
    path.write_bytes({"cut": data[: len(data) // 2], "flipped": data, "empty": b""}[damage])
    with pytest.raises(ResultsError, match=rf"{path} is not whole .*`rm .*`sweep report` writes it again"):
        load_trial(folder)
    row = load_sweep(sweep_dir).rows[0]  # one bad file is one bad row
    assert row.outcome == "unreadable"
    assert str(path) in str(row.reason)


def test_results_have_one_row_per_planned_trial(sweep_dir: Path) -> None:
    table = read_results(write_results(sweep_dir).parent)
    rows = table.to_pylist()
    assert [row["outcome"] for row in rows] == ["ok", "does_not_fit", None]
    assert [row["axis.dataloader_workers"] for row in rows] == [0, 1, 2]
    assert rows[1]["reason"] == "out of memory: 80 GiB"
    assert rows[0]["env.device_name"] == "Made-up CPU"
    assert rows[2]["env.device_name"] is None
    assert set(NAMES) <= set(table.column_names)
    assert rows[0]["throughput_low"] < rows[0]["throughput"] < rows[0]["throughput_high"]
    assert rows[1]["throughput"] is None
    assert json.loads(rows[0]["parameters"])["batch_size"] == 8
    assert rows[0]["emulated"] is False


def test_an_axis_of_numbers_and_words_is_text(tmp_path: Path) -> None:
    made = make_sweep(tmp_path, [Fake(axes(batch_size=8), outcome=None), Fake(axes(batch_size="max"), outcome=None)])
    write_results(made)
    assert read_results(made).column("axis.batch_size").to_pylist() == ["8", "max"]


def test_damaged_results_say_how_to_write_them_again(sweep_dir: Path) -> None:
    path = write_results(sweep_dir)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ResultsError, match=rf"results.parquet is not whole .*`sweep report {sweep_dir.name}`"):
        read_results(sweep_dir)


def test_impossible_steps_name_the_file_and_the_step(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    (folder / "result.json").unlink()
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        journal.append("step", step=1, measured=True, loss=9.0, samples=8, total_s=-1.0)
    with pytest.raises(ResultsError, match=r"journal.jsonl holds what cannot be: step 1: total_s is -1.0"):
        load_trial(folder)


def test_no_plan_is_said(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is not a sweep"):
        load_sweep(tmp_path)
    (tmp_path / "plan.json").write_text('{"trials": [{"key": 1}]}')
    with pytest.raises(ResultsError, match=r"plan.json is damaged"):
        load_sweep(tmp_path)
    with pytest.raises(ResultsError, match=r"has not started"):
        write_steps(tmp_path)
