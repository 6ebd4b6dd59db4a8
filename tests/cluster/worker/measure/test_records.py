"""The meter is arithmetic: what it accepts, what it rejects, what it makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.worker.measure.records import ImpossibleData, RankWindow, step_record, window_record
from experiments.step_record import StepTiming

TIMING = StepTiming(
    step=7, samples=16, loss=2.5, ended_at=1e9, data_wait_s=0.01, h2d_s=0.002, forward_backward_s=0.08, optimizer_s=0.008, total_s=0.1
)


def test_a_step_counts_samples_over_all_ranks() -> None:
    record = step_record(TIMING, world_size=4, measured=True)
    assert record["samples"] == 64
    assert record["total_s"] == 0.1
    assert record["measured"] is True
    assert {"step", "loss", "data_wait_s", "h2d_s", "forward_backward_s", "optimizer_s"} <= record.keys()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"data_wait_s": -0.001}, "data_wait_s"),
        ({"optimizer_s": float("nan")}, "optimizer_s"),
        ({"total_s": float("inf")}, "total_s"),
        ({"total_s": 0.2}, "parts"),
        ({"samples": 0}, "0 samples"),
    ],
)
def test_impossible_steps_are_rejected_by_name(change: dict[str, float], word: str) -> None:
    with pytest.raises(ImpossibleData, match=word) as caught:
        step_record(replace(TIMING, **change), world_size=1, measured=True)  # type: ignore[arg-type]
    assert "step 7" in str(caught.value)


def test_a_window_sums_samples_and_energy_and_takes_the_slowest_wall() -> None:
    ranks = [RankWindow(0, 100, 2.0, 10, 1, 300.0), RankWindow(1, 100, 2.5, 20, 2, 200.0)]
    record = window_record(ranks)
    assert (record["samples"], record["wall_s"], record["peak_memory_bytes"], record["alloc_retries"]) == (200, 2.5, 20, 3)
    assert (record["energy_j"], record["mean_power_w"]) == (500.0, 200.0)
    assert record["ranks"] == [{"rank": 0, "samples": 100, "wall_s": 2.0}, {"rank": 1, "samples": 100, "wall_s": 2.5}]


def test_unknown_stays_unknown() -> None:
    record = window_record([RankWindow(0, 100, 2.0, None, None, 300.0), RankWindow(1, 100, 2.5, None, None, None)])
    assert record["energy_j"] is None and record["mean_power_w"] is None and record["peak_memory_bytes"] is None


@pytest.mark.parametrize(
    "ranks",
    [
        [],
        [RankWindow(1, 10, 1.0)],
        [RankWindow(0, 10, 1.0), RankWindow(0, 10, 1.0)],
        [RankWindow(0, 0, 1.0)],
        [RankWindow(0, 10, 0.0)],
        [RankWindow(0, 10, float("nan"))],
        [RankWindow(0, 10, 1.0, energy_j=-1.0)],
    ],
)
def test_impossible_windows_are_rejected(ranks: list[RankWindow]) -> None:
    with pytest.raises(ImpossibleData):
        window_record(ranks)
