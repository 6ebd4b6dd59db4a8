"""What is taken from the nights that were measured: all of them, without the planted change, with every disturbance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.noise import RECORDING
from benchmarks.recorded_noise import PLANTED, recorded_nights

DATES = [f"2026-11-{day:02d}" for day in range(1, 22)]


def steps(path: Path, other_nights: int = 10) -> Path:
    """21 nights, one step a trial: the canary, a cell slower by 10 % from the planted night on and by 50 % on nights 8 to 10, another."""
    rows = []
    for number, date in enumerate(DATES, start=1):
        for trial in (1, 2):
            wobble = 1.01 if trial == 1 else 1 / 1.01
            mine = (1.1 if date >= PLANTED else 1.0) * (1.5 if 8 <= number <= 10 else 1.0)
            rows += [("synthetic", 128, "history", date, trial, 1000 * wobble * mine), ("canary", 64, "canary", date, trial, 500 * wobble)]
            rows += [("synthetic", 128, "injected", date, trial, 9e9)]
            if number <= other_nights:
                rows.append(("canary", 96, "history", date, trial, 700 * wobble))
    frame = pd.DataFrame(rows, columns=["suite", "width", "role", "date", "round", "step_us"])
    frame.to_parquet(path / "steps.parquet")
    return path / "steps.parquet"


def test_every_night_counts_the_plant_is_taken_out_and_the_disturbance_stays(tmp_path: Path) -> None:
    nights = recorded_nights(steps(tmp_path))
    assert (nights.kinds, nights.nights) == (2, 21)
    disturbed = [0.0 if number not in (8, 9, 10) else -np.log(1.5) for number in range(1, 22)]
    assert nights.level[0].tolist() == pytest.approx(disturbed, abs=1e-9)
    assert np.isnan(nights.level[1, 10:]).all() and np.isfinite(nights.level[1, :10]).all()


def test_a_wider_cell_of_the_planted_cells_suite_keeps_its_own_drift(tmp_path: Path) -> None:
    frame = pd.read_parquet(steps(tmp_path))
    wide = frame[(frame.suite == "synthetic") & (frame.role == "history")].assign(width=256)
    wide["step_us"] = [1000.0 * (1.05 if date >= PLANTED else 1.0) for date in wide.date]  # the node's, not the code's
    pd.concat([frame, wide]).to_parquet(tmp_path / "steps.parquet")
    levels = recorded_nights.__wrapped__(tmp_path / "steps.parquet").level
    assert sorted(round(float(level[14] - level[0]), 6) for level in levels[:2]) == pytest.approx([-np.log(1.05), 0.0], abs=1e-6)


def test_trials_of_two_a_night_are_spread_to_vary_as_trials_do(tmp_path: Path) -> None:
    nights = recorded_nights(steps(tmp_path))
    around = nights.around[0, 0]
    assert sorted(np.abs(around[np.isfinite(around)])) == pytest.approx([np.sqrt(2) * np.log(1.01)] * 2)
    assert nights.cell(np.array([0, 0]), np.array([0, 0]), np.array([0.1, 0.9])).tolist() == pytest.approx(around[:2].tolist())


def test_a_cell_that_was_not_measured_on_a_night_is_drawn_from_the_one_that_was(tmp_path: Path) -> None:
    nights = recorded_nights(steps(tmp_path))
    assert nights.kind(np.array([1, 1, 0]), np.array([9, 10, 10])).tolist() == [1, 0, 0]


def test_a_file_without_a_cell_of_every_night_is_refused(tmp_path: Path) -> None:
    frame = pd.read_parquet(steps(tmp_path))
    frame[(frame.role == "canary") | (frame.width == 96)].to_parquet(tmp_path / "steps.parquet")
    with pytest.raises(ValueError, match="measured every night"):
        recorded_nights.__wrapped__(tmp_path / "steps.parquet")


def test_our_own_nights_are_twenty_one_of_which_eight_and_nine_are_disturbed() -> None:
    nights = recorded_nights(RECORDING)
    assert nights.nights == 21 and nights.kinds >= 2
    disturbed = nights.level[:, 7:9]
    assert disturbed.min() < -0.08 and disturbed[:, 1].max() < -0.04
