from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cluster.journal.journal import JournalWriter, read_journal
from experiments.config.errors import DamagedFile
from experiments.summary import NAMES
from experiments.trial import Outcome
from tasks.analysis.results import ResultsError, load_sweep, trial_records, write_results, write_steps
from tasks.analysis.trial_row import TrialRow
from tests.tasks import cell_support
from tests.tasks.fake_sweep import WARMUP, Fake, make_sweep, trial_dirs
from tests.tasks.price_support import priced


def axes(workers: int = 0, **more: object) -> dict[str, object]:
    return {"pool": "cpu", "model": "base", "dataloader_workers": workers, **more}


def row_of(folder: Path) -> TrialRow:
    """The trial's row in its sweep."""
    return next(row for row in load_sweep(folder.parents[1]).rows if row.trial.key == folder.name)


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
    before = row_of(folder)
    path = write_steps(folder)
    table = pq.read_table(path)
    assert table.num_rows == 60
    assert table.column("measured").to_pylist().count(False) == WARMUP
    journal = read_journal(folder / "journal.jsonl")
    assert table.column("total_s").to_pylist() == [record["total_s"] for record in journal.steps]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    (folder / "journal.jsonl").unlink()
    after = row_of(folder)
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
    assert row_of(folder).losses.tolist() == [9.0]


def lost_retry(folder: Path) -> None:
    """Attempt 2, which was to measure the trial again and was lost after its first step, with the sampler's records beside both."""
    for attempt, mhz, seconds in ((1, 1000, 62), (2, 1800, 2)):
        with JournalWriter(folder / "device_state.jsonl", attempt, interval=600) as state:
            state.append("sampler", attempt=attempt, device="cuda", hz=10.0, user="ada")
            for tick in range(10 * seconds):
                device = {"index": 0, "sm_mhz": mhz, "capped_by": [], "others": []}
                state.append("state", t=1_767_225_600 + tick / 10, devices=[device], cpu={})
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        journal.append("environment", torch="another")
        journal.append("step", t=1_767_225_601.0, step=1, measured=True, loss=9.0, samples=8, total_s=1.0)


def test_a_retry_that_was_lost_takes_no_measurement_away(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    before = row_of(folder)
    lost_retry(folder)
    for derived in (False, True):
        if derived:
            table = pq.read_table(write_steps(folder))
            assert table.num_rows == 60 and json.loads(table.schema.metadata[b"sweepbench"])["attempt"] == 1
        row = row_of(folder)
        assert row.outcome == "ok" and row.losses.tolist() == before.losses.tolist() and row.losses.size == 60
        assert row.summary["throughput"] == before.summary["throughput"] and row.environment["torch"] == "2.13.0"
        assert row.state is not None and row.state.clock_mean_mhz == pytest.approx(1000)


def test_parquet_of_another_attempt_than_the_results_is_passed_over(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    result = (folder / "result.json").read_text()
    lost_retry(folder)
    (folder / "result.json").unlink()
    assert pq.read_table(write_steps(folder)).num_rows == 1, "the last attempt's, as long as the trial has no result"
    assert row_of(folder).losses.tolist() == [9.0]
    (folder / "result.json").write_text(result)
    assert row_of(folder).losses.size == 60


def test_a_result_of_an_attempt_that_left_no_records_has_no_steps(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"attempt":1', '"attempt":2'))
    row = row_of(folder)
    assert (row.outcome, row.losses.size, row.state) == ("ok", 0, None)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_parquet_is_made_again_from_the_journal_and_named_where_there_is_none(sweep_dir: Path, damage: str) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = write_steps(folder)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[200] ^= 0xFF
    path.write_bytes({"cut": data[: len(data) // 2], "flipped": data, "empty": b""}[damage])
    assert row_of(folder).outcome == "ok" and row_of(folder).losses.size == 60
    (folder / "journal.jsonl").unlink()
    row = row_of(folder)  # one bad file is one bad row
    assert row.outcome == "unreadable"
    assert re.match(rf"{path} is not whole .*put back the journal that it was made from", str(row.reason))


def test_results_have_one_row_per_planned_trial(sweep_dir: Path) -> None:
    table = pq.read_table(write_results(sweep_dir))
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
    assert pq.read_table(write_results(made)).column("axis.batch_size").to_pylist() == ["8", "max"]


def test_impossible_steps_name_the_file_and_the_step(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    (folder / "result.json").unlink()
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        journal.append("step", step=1, measured=True, loss=9.0, samples=8, total_s=-1.0)
    assert "journal.jsonl holds what cannot be: step 1: total_s is -1.0" in str(row_of(folder).problem)


def test_no_plan_is_said(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is not a sweep; `sweep list` shows those that are"):
        load_sweep(tmp_path)
    (tmp_path / "plan.json").write_text('{"trials": [{"key": 1}]}')
    with pytest.raises(DamagedFile, match=r"plan.json, sweep_id: is missing, and \d+ more"):
        load_sweep(tmp_path)
    with pytest.raises(ResultsError, match=r"has not started"):
        write_steps(tmp_path)


# --- what a trial's files come to


def test_a_row_holds_what_the_attempt_left(tmp_path: Path) -> None:
    made = make_sweep(
        tmp_path, [Fake(axes(), rms=lambda step: 2.0 if step == 7 else 1.0, window={"profile": {"span_s": 1.0}, "peak_flops": 2.0})]
    )
    folder = trial_dirs(made)[0]
    for write in (False, True):
        if write:
            write_steps(folder)
        row = row_of(folder)
        assert row.steps.tolist() == list(range(1, 61)) and row.steps.dtype == np.int64
        assert list(row.rms) == ["patch"] and row.rms["patch"][[5, 6, 7]].tolist() == [1.0, 2.0, 1.0]
        of_window = {"flops_per_sample": None, "attention_flops_per_sample": None, "peak_flops": 2.0, "peak_clock_mhz": None}
        assert row.profile == {"span_s": 1.0, **of_window}, "with what its waterfall needs"
        assert (row.summary["eval_loss_before"], row.summary["eval_loss_after"]) == (5.0, 2.5)
        assert (row.outcome, row.reason, row.emulated, row.notes) == ("ok", None, False, [])


def test_notes_and_losses_that_are_not_known(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    (folder / "result.json").unlink()
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        journal.append("note", text="said")
        journal.append("step", step=1, measured=True, loss=None, samples=8, total_s=1.0)
        journal.append("step", step=2, measured=True, loss=3.0, samples=8, total_s=1.0)
        for number, loss in enumerate((math.nan, -math.inf), 3):
            journal.append("step", step=number, measured=True, loss=loss, samples=8, total_s=1.0)
    row = row_of(folder)
    assert row.notes == ["said"] and row.outcome == "to do" and row.rms == {}
    known = [math.nan, 3.0, math.inf, math.inf]  # not recorded, finite, and twice recorded as not finite
    assert np.array_equal(row.losses, known, equal_nan=True)
    write_steps(folder)
    (folder / "journal.jsonl").unlink()
    assert np.array_equal(row_of(folder).losses, known, equal_nan=True), "from steps.parquet alone"


def test_what_failed_has_steps_but_no_rate(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"outcome":"ok"', '"outcome":"crashed"'))
    row = row_of(folder)
    assert (row.outcome, row.summary, row.losses.size) == ("crashed", {}, 60)


def test_a_result_speaks_for_steps_that_are_gone(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"summary":{}', '"summary":{"throughput":77.0}'))
    assert row_of(folder).summary["throughput"] == pytest.approx(100, rel=0.02), "the steps come first"
    (folder / "journal.jsonl").unlink()
    row = row_of(folder)
    assert row.summary["throughput"] == 77.0 and row.steps.size == 0
    assert row.environment["torch"] == "2.13.0", "the result's"


def test_the_journals_environment_is_the_later_one(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"torch":"2.13.0"', '"torch":"old","only":"here"'))
    found = row_of(folder).environment
    assert (found["torch"], found["only"]) == ("2.13.0", "here")


def test_who_says_that_a_trial_is_emulated(tmp_path: Path) -> None:
    pool, device, neither = (
        Fake(axes(0), emulated=True),
        Fake(axes(1), environment={"emulated": True}),
        Fake(axes(2), environment={"emulated": False}),
    )
    rows = load_sweep(make_sweep(tmp_path, [pool, device, neither])).rows
    assert [found.emulated for found in rows] == [True, True, False]
    assert cell_support.row({"pool": "cpu"}, outcome=None, emulated=True).emulated, "its pool says so before it has run"
    folder = trial_dirs(make_sweep(tmp_path / "result", [neither]))[0]
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"emulated":false', '"emulated":true', 1))
    assert row_of(folder).emulated


def test_a_damaged_result_says_what_to_do(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    (folder / "result.json").write_text("{}")
    with pytest.raises(DamagedFile, match=r"result\.json, key: is missing"):
        write_steps(folder)
    assert [row.outcome for row in load_sweep(sweep_dir).rows] == ["unreadable", "does_not_fit", "to do"]
    assert re.search(
        "result.json, key: is missing, and 4 more; `sweep resume` keeps it aside and runs the trial again", str(row_of(folder).problem)
    )


def test_steps_parquet_says_which_journal_it_holds(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    path = write_steps(folder)
    meta = json.loads(pq.read_schema(path).metadata[b"sweepbench"])
    journal = read_journal(folder / "journal.jsonl")
    assert meta["attempt"] == 1 and meta["schema_version"] == 1
    assert meta["journal_bytes"] == (folder / "journal.jsonl").stat().st_size and meta["journal_checksum"] == journal.checksum
    assert meta["window"] == journal.window and meta["environment"]["torch"] == "2.13.0"
    assert not {"kind", "crc"} & set(pq.read_schema(path).names)


def test_the_columns_of_results(tmp_path: Path) -> None:
    made = make_sweep(
        tmp_path,
        [
            Fake(axes(fused=True), environment={"flags": {"b": 1, "a": 2}, "count": 1}),
            Fake(axes(fused=None), environment={"count": 2.5}, outcome=Outcome.CRASHED, reason="boom"),
            Fake(axes(1), metrics={"odd": 1.0}, steps=12),
        ],
    )
    table = pq.read_table(write_results(made))
    first, second, third = table.to_pylist()
    assert third["eval_odd_before"] == 1.0 and first["eval_odd_before"] is None
    assert [str(table.schema.field(name).type) for name in ("repeat", "throughput", "name")] == ["int64", "double", "string"]
    dotted = ["." in name for name in table.column_names]
    assert dotted == sorted(dotted), "what axes and environments add comes last"
    assert (first["env.flags"], second["env.flags"]) == ('{"a": 2, "b": 1}', None)
    assert (first["env.count"], second["env.count"]) == (1.0, 2.5)
    assert (first["axis.fused"], second["axis.fused"]) == (True, None)
    assert (first["sweep_id"], first["name"], first["repeat"], second["index"]) == (made.name, "cpu · base · MP-0 · fused · #1", 1, 1)
    assert (first["attempt"], first["started_at"], second["finished_at"]) == (1, 1_767_225_600.0, 1_767_225_602.0)
    assert (second["reason"], first["reason"]) == ("boom", None)
    assert not list(made.glob(".*.tmp"))


def test_a_trial_of_a_priced_pool_says_what_its_cost_is_made_of(sweep_dir: Path) -> None:
    sweep = load_sweep(sweep_dir)
    first = trial_records(replace(sweep, rows=priced(sweep.rows, 3.6, units=2)))[0]
    assert (first["trial_price_per_hour"], first["price_currency"]) == (7.2, "USD")
    assert first["cost_per_million_samples"] == pytest.approx(7.2 / 3600 * 1e6 / first["throughput"])
    assert "trial_price_per_hour" not in trial_records(sweep)[0]


def test_a_file_that_cannot_be_put_in_place_leaves_nothing(sweep_dir: Path) -> None:
    (sweep_dir / "results.parquet").mkdir()
    with pytest.raises(OSError, match=r"results\.parquet"):
        write_results(sweep_dir)
    assert not list(sweep_dir.glob(".*.tmp"))


def test_steps_that_only_lengthen_the_window_are_in_no_curve(tmp_path: Path) -> None:
    made = make_sweep(tmp_path, [Fake(axes(), window={"last_learning_step": 40}, rms=lambda step: 1.0), Fake(axes(1))])
    longer, plain = load_sweep(made).rows
    assert longer.steps.tolist() == list(range(1, 41)) and longer.losses.size == 40
    assert {name: values.size for name, values in longer.rms.items()} == {"patch": 40}
    assert (longer.summary["measured_steps"], plain.steps.size) == (60 - WARMUP, 60)
    assert longer.summary["final_loss"] == longer.losses[-1]


def test_kinds_of_steps_reach_the_summary_from_the_journal_and_from_parquet(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    (folder / "result.json").unlink()
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60) as journal:
        for number in range(1, 61):
            kind, seconds = ("image", 0.3) if number % 2 else ("text", 0.1)
            journal.append("step", step=number, measured=True, loss=1.0, samples=8, total_s=seconds + number % 7 / 1e4, step_kind=kind)
    first = row_of(folder).summary
    assert first["throughput_high"] / first["throughput_low"] < 1.01, "no noise but a thousandth"
    table = pq.read_table(write_steps(folder))
    assert table.column("step_kind").to_pylist() == ["image", "text"] * 30
    (folder / "journal.jsonl").unlink()
    assert row_of(folder).summary == first


def test_parquet_from_before_steps_had_kinds_is_read(sweep_dir: Path) -> None:
    folder = trial_dirs(sweep_dir)[0]
    before = row_of(folder).summary
    path = write_steps(folder)
    table = pq.read_table(path)
    assert table.column("step_kind").to_pylist() == [None] * 60
    pq.write_table(table.drop_columns(["step_kind"]), path, write_page_checksum=True)
    (folder / "journal.jsonl").unlink()
    assert row_of(folder).summary == before


def test_too_short_is_a_rate_without_an_interval() -> None:
    measured = {"throughput": 100.0, "measured_steps": 20}
    for summary, short in (({}, False), (measured, True), ({**measured, "throughput_low": 90.0}, False), ({"measured_steps": 20}, False)):
        row = cell_support.row({"pool": "cpu"}, None, summary=summary)
        assert row.too_short == short, summary
