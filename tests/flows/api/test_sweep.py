"""`import sweepbench`: frames of a sweep, with the numbers of the report and of `sweep show --json`."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sweepbench as sb
from experiments.config.paths import runs_root
from experiments.trial import Outcome
from flows.cli.show_sweeps import sweep_json
from tasks.analysis.results import load_sweep
from tasks.report.model import report_source
from tasks.sweep.store import SweepStore
from tests.tasks.fake_sweep import Fake, make_sweep, trial_dirs
from tests.tasks.spread_support import write_history

A, B = "made-up-20260101-000000-0000", "made-up-20260102-000000-0000"


def axes(count: int) -> dict[str, Any]:
    return {"pool": "cpu", "model": "tiny", "dataloader_workers": count}


def made(sweep_id: str = A, factor: float = 1.0) -> Path:
    fakes = [
        Fake(axes(0), rate=100 * factor, repeats=3),
        Fake(axes(1), rate=150 * factor, repeats=3),
        Fake(axes(2), outcome=Outcome.DOES_NOT_FIT, reason="out of memory"),
        Fake(axes(3), emulated=True),
    ]
    return make_sweep(runs_root(), fakes, sweep_id=sweep_id)


def test_cells_are_those_of_the_report() -> None:
    folder = made()
    frame, report = sb.load().cells(), report_source(load_sweep(folder)).cells
    assert frame[["pool", "model", "dataloader_workers"]].to_numpy().tolist() == [["cpu", "tiny", count] for count in (0, 1, 2)]
    assert list(frame.columns[:3]) == ["pool", "model", "dataloader_workers"], "axes come first"
    for (_, mine), cell in zip(frame.iterrows(), report, strict=True):
        if cell.estimate is None:
            assert math.isnan(mine["estimate"]) and mine["outcome"] == "does_not_fit"
            continue
        assert (mine["estimate"], mine["low"], mine["high"]) == (cell.estimate.value, cell.estimate.low, cell.estimate.high)
        if cell.speedup is not None:
            assert (mine["ratio"], mine["ratio_low"], mine["ratio_high"]) == (cell.speedup.value, cell.speedup.low, cell.speedup.high)
            assert mine["verdict"] == str(cell.verdict) == "faster"
    assert frame["decided_after"].isna().all() and frame["decided_after"].dtype == float


def test_emulated_cells_are_asked_for() -> None:
    made()
    assert sb.load().cells(emulated=True)[["dataloader_workers", "emulated"]].to_numpy().tolist() == [[3, True]]


def test_trials_are_those_of_sweep_show() -> None:
    made()
    frame, told = sb.load(A).trials(), sweep_json(SweepStore(A))["trials"]
    assert frame["trial_key"].tolist() == [trial["key"] for trial in told]
    assert frame["outcome"].tolist() == [trial["outcome"] for trial in told]
    for name in ("throughput", "step_time_median_s", "final_loss"):
        expected = [trial["summary"].get(name) for trial in told]
        assert [None if pd.isna(value) else value for value in frame[name]] == expected
    assert frame["emulated"].tolist() == [trial["emulated"] for trial in told]
    assert frame.loc[frame["emulated"], "dataloader_workers"].tolist() == [3]


def test_steps_of_a_trial_by_its_key_or_its_name() -> None:
    made()
    sweep = sb.load(A)
    first = sweep.trials().iloc[0]
    steps = sweep.steps(first["trial_key"])
    assert steps["step"].tolist() == list(range(1, 61)) and steps["measured"].sum() == 55
    window = steps[steps["measured"]]
    assert window["samples"].sum() / window["total_s"].sum() == pytest.approx(first["throughput"])
    pd.testing.assert_frame_equal(sweep.steps(first["name"]), steps)
    with pytest.raises(sb.ConfigError, match="TRIAL: nothing: is no trial of the sweep"):
        sweep.steps("nothing")


def test_a_sweep_says_what_it_is() -> None:
    made()
    sweep = sb.load(A)
    assert (sweep.id, sweep.suite, sweep.profile, sweep.ended) == (A, "made_up", "smoke", True)
    assert repr(sweep) == f"<sweep {A}: 8 of 8 trials ended>"
    assert "MP-1" in sweep.headline and sweep.command == "sweep run made_up --profile smoke"
    assert sb.load(sweep.folder).id == A


def test_all_sweeps_newest_first_and_none_before_there_is_one() -> None:
    assert sb.sweeps().empty and "sweep_id" in sb.sweeps()
    made(A)
    made(B)
    (runs_root() / A / "plan.json").write_text("{")
    frame = sb.sweeps()
    assert frame["command"].iloc[0] == "sweep run made_up --profile smoke" and pd.isna(frame["command"].iloc[1])
    assert frame["sweep_id"].tolist() == [B, A] and frame["state"].tolist() == ["complete", "unreadable"]
    assert frame["created_at"].iloc[0] == pd.Timestamp("2026-01-01", tz="UTC") and pd.isna(frame["problem"].iloc[0])


def test_two_sweeps_cell_by_cell() -> None:
    write_history(runs_root(), pool="cpu", trial_sd=1e-6, sweep_sd=1e-6)
    made(A)
    made(B, 1.2)
    frame = sb.compare(A, sb.load(B))
    both = frame.loc[frame["outcome_a"] == "ok"]
    assert both["ratio"].tolist() == pytest.approx([1.2, 1.2], rel=0.01) and both["verdict"].tolist() == ["faster", "faster"]
    assert (both["ratio_low"] < both["ratio"]).all() and (both["ratio"] < both["ratio_high"]).all()
    assert both["b"].tolist() == pytest.approx([120.0, 180.0], rel=0.01)
    assert frame.loc[frame["outcome_a"] == "does_not_fit", "ratio"].isna().all()
    with pytest.raises(sb.UserError, match="both sides are sweep"):
        sb.compare(A, A)


def test_damaged_trials_are_warned_of_at_the_callers_line(tmp_path: Path) -> None:
    made(A)
    path = trial_dirs(made(B))[0] / "result.json"
    path.write_bytes(path.read_bytes()[:100])
    for call in (lambda: sb.load(B), lambda: sb.load(B).export("csv", tmp_path / "out"), lambda: sb.compare(A, B)):
        with pytest.warns(UserWarning, match="left out: .*result.json") as told:
            call()
        assert {one.filename for one in told} == {__file__} and str(path) in str(told[-1].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb.load(A)


def test_what_is_no_sweep_is_an_error_for_the_user() -> None:
    with pytest.raises(sb.UserError, match="there is no sweep yet"):
        sb.load()


def test_a_sweep_exports_itself(tmp_path: Path) -> None:
    made()
    files = sb.load().export("csv", tmp_path / "out")
    assert [path.name for path in files] == ["cells.csv", "trials.csv", "steps.csv"]
    with pytest.raises(sb.ConfigError, match="is no format"):
        sb.load().export("xml", tmp_path / "other")
