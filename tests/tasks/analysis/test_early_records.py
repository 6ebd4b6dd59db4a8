"""Records of earlier workers: what a figure was divided by, and what a name meant."""

from __future__ import annotations

import pytest

from tasks.analysis.early_records import EARLY_FLOPS, notes_of_today, summary_of_today, window_of_today


@pytest.mark.parametrize(
    ("linear", "kept"), [("fp8_tensorwise", False), ("switchback", False), ("plain", True), ("fp8_simulated", True), (None, True)]
)
def test_an_early_peak_is_kept_only_where_all_was_computed_in_its_precision(linear: str | None, kept: bool) -> None:
    parameters = {} if linear is None else {"linear": linear}
    window = {"peak_flops": 989.5e12, "samples": 3}
    found = window_of_today(window, parameters)
    assert found == {"peak_flops": 989.5e12 if kept else None, "samples": 3}
    assert window["peak_flops"] == 989.5e12, "what was read stays as it is"
    today = {**window, "flops_by_precision": {"fp8": 1.0}}
    assert window_of_today(today, parameters) is today
    assert window_of_today(None, parameters) is None


def test_an_early_latency_was_a_service_time() -> None:
    assert summary_of_today({"latency_p50_s": 0.5, "throughput": 2.0}, {}) == {"service_time_p50_s": 0.5, "throughput": 2.0}
    assert summary_of_today({"latency_p50_s": 0.5}, {"tree": "0" * 16}) == {"latency_p50_s": 0.5}


@pytest.mark.parametrize(("steps", "settled"), [(7, None), (8, False), (None, False)])
@pytest.mark.parametrize("environment", [{}, {"tree": "0" * 16}])
def test_early_workers_called_too_few_steps_not_settled(steps: int | None, settled: bool | None, environment: dict[str, str]) -> None:
    kept = {"settled": False, "measured_steps": steps}
    assert summary_of_today(kept, environment) == {"settled": settled, "measured_steps": steps}
    assert kept["settled"] is False, "what was read stays as it is"


@pytest.mark.parametrize(
    ("workload", "window", "said"),
    [
        ("bridgetower", {"flops_per_sample": 1e12}, True),
        ("bridgetower_inference", {"flops_per_sample": 1e12}, True),
        ("bridgetower", {"flops_per_sample": 1e12, "flop_count": 2}, False),
        ("bridgetower", {"flops_per_sample": None}, False),
        ("bridgetower", {}, False),
        ("vit", {"flops_per_sample": 1e12}, False),
    ],
)
def test_a_report_says_where_flops_are_by_the_early_count(workload: str, window: dict[str, float | None], said: bool) -> None:
    assert notes_of_today(["one"], window, workload) == ["one", *([EARLY_FLOPS] if said else [])]
