"""The meter is arithmetic: what it accepts, what it rejects, what it makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.worker.measure.records import ImpossibleData, RankWindow, step_record, window_record
from experiments.step_record import StepTiming

TIMING = StepTiming(
    step=7, samples=16, loss=2.5, ended_at=1e9, data_wait_s=0.01, h2d_s=0.002, forward_backward_s=0.08, optimizer_s=0.008, total_s=0.1
)

NO_TIME = {"data_wait_s": 0.0, "h2d_s": 0.0, "forward_backward_s": 0.0, "optimizer_s": 0.0, "total_s": 0.0}


def test_a_step_counts_samples_over_all_ranks() -> None:
    record = step_record(TIMING, world_size=4, measured=True)
    parts = {"data_wait_s": 0.01, "h2d_s": 0.002, "forward_backward_s": 0.08, "optimizer_s": 0.008}
    assert record == {"step": 7, "measured": True, "loss": 2.5, "samples": 64, **parts, "total_s": 0.1}
    assert step_record(replace(TIMING, samples=1), world_size=1, measured=False)["samples"] == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"data_wait_s": -0.001}, "data_wait_s"),
        ({"loader_wait_s": -0.001}, "loader_wait_s"),
        ({"loader_wait_s": float("inf")}, "loader_wait_s"),
        ({"optimizer_s": float("nan")}, "optimizer_s"),
        ({"total_s": float("inf")}, "total_s"),
        ({"total_s": 0.2}, "parts"),
        ({"total_s": -0.1}, "total_s is -0.1"),
        ({"samples": 0}, "0 samples"),
        (NO_TIME, "16 samples in 0.0 s"),
    ],
)
def test_impossible_steps_are_rejected_by_name(change: dict[str, float], word: str) -> None:
    with pytest.raises(ImpossibleData, match=word) as caught:
        step_record(replace(TIMING, **change), world_size=1, measured=True)  # type: ignore[arg-type]
    assert "step 7" in str(caught.value)


@pytest.mark.parametrize(
    ("total_s", "off_s", "possible"),
    [
        (0.1, 0.99e-4, True),  # a thousandth of the step
        (0.1, 1.01e-4, False),
        (0.1, -0.99e-4, True),
        (0.1, -1.01e-4, False),
        (0.01, 3.9e-5, True),  # or what the device's clock resolves, once for each part
        (0.01, 4.1e-5, False),
    ],
)
def test_how_far_the_parts_may_be_from_the_whole(total_s: float, off_s: float, possible: bool) -> None:
    timing = replace(TIMING, data_wait_s=total_s / 2, h2d_s=0.0, forward_backward_s=total_s / 2, optimizer_s=0.0, total_s=total_s + off_s)
    if possible:
        assert step_record(timing, world_size=1, measured=True)["h2d_s"] == 0.0
        return
    with pytest.raises(ImpossibleData, match="its parts take"):
        step_record(timing, world_size=1, measured=True)


def test_a_window_sums_samples_and_energy_and_takes_the_slowest_wall() -> None:
    ranks = [RankWindow(0, 100, 2.0, 10, 1, 300.0), RankWindow(1, 100, 2.5, 20, 2, 200.0)]
    record = window_record(ranks)
    assert (record["samples"], record["wall_s"], record["peak_memory_bytes"], record["alloc_retries"]) == (200, 2.5, 20, 3)
    assert record["energy_j"] == 500.0
    assert record["ranks"] == [
        {"rank": 0, "samples": 100, "wall_s": 2.0, "left_out_s": 0.0, "data_wait_s": 0.0},
        {"rank": 1, "samples": 100, "wall_s": 2.5, "left_out_s": 0.0, "data_wait_s": 0.0},
    ]


def test_unknown_stays_unknown() -> None:
    record = window_record([RankWindow(0, 100, 2.0, None, None, 300.0), RankWindow(1, 100, 2.5, None, None, None)])
    assert record["energy_j"] is None and record["peak_memory_bytes"] is None
    assert record["alloc_retries"] is None
    record = window_record([RankWindow(0, 100, 2.0, None, 0, 0.0), RankWindow(1, 100, 2.5, 20, 0, 0.0)])
    assert record["peak_memory_bytes"] == 20, "the worst of those that are known"
    assert (record["alloc_retries"], record["energy_j"]) == (0, 0.0), "nothing is not unknown"
    assert window_record([RankWindow(0, 100, 2.0, None, 3), RankWindow(1, 100, 2.5, None, None)])["alloc_retries"] is None
    assert window_record([RankWindow(0, 1, 2.0)])["samples"] == 1


def test_each_rank_tells_what_its_steps_took_that_count_in_no_rate() -> None:
    ranks = [RankWindow(0, 100, 2.0, left_out_s=0.25), RankWindow(1, 100, 2.5)]
    assert [rank["left_out_s"] for rank in window_record(ranks)["ranks"]] == [0.25, 0.0]


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ([], r"windows of ranks \[\]"),
        ([RankWindow(1, 10, 1.0)], r"windows of ranks \[1\]"),
        ([RankWindow(0, 10, 1.0), RankWindow(0, 10, 1.0)], r"windows of ranks \[0, 0\]"),
        ([RankWindow(0, 10, 1.0), RankWindow(2, 10, 1.0)], r"windows of ranks \[0, 2\]"),
        ([RankWindow(0, 10, 1.0), RankWindow(1, 0, 1.0)], "rank 1: 0 samples in 1.0 s"),
        ([RankWindow(0, 10, 0.0)], "rank 0: 10 samples in 0.0 s"),
        ([RankWindow(0, 10, -1.0)], "rank 0: 10 samples in -1.0 s"),
        ([RankWindow(0, 10, float("nan"))], "rank 0: 10 samples in nan s"),
        ([RankWindow(0, 10, float("inf"))], "rank 0: 10 samples in inf s"),
        ([RankWindow(0, 10, 1.0, energy_j=-1.0)], "rank 0: -1.0 J"),
    ],
)
def test_impossible_windows_are_rejected_by_name(ranks: list[RankWindow], problem: str) -> None:
    with pytest.raises(ImpossibleData, match=problem):
        window_record(ranks)


def test_ranks_may_come_in_any_order() -> None:
    record = window_record([RankWindow(1, 30, 2.5), RankWindow(0, 10, 2.0)])
    assert (record["samples"], [rank["rank"] for rank in record["ranks"]]) == (40, [1, 0])
