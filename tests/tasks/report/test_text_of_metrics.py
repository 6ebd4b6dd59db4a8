"""How values, spreads and comparisons read, for each kind of metric and on both scales."""

from __future__ import annotations

import math

import pytest

from experiments.metrics import metric_of
from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean
from tasks.report.text_format import change, change_interval, quantity, spread


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("throughput", 581.53, "581.5 samples/s"),
        ("latency_p50_s", 0.0123, "12.3 ms"),
        ("compile_seconds", 72.5, "72.5 s"),
        ("peak_memory_bytes", 3 * 2.0**30, "3.00 GiB"),
        ("data_wait_share", 0.123, "12.3 %"),
        ("data_wait_share", 0.0, "0.0 %"),
        ("batch_size", 1024.0, "1,024 samples"),
        ("loss_spikes", 0, "0"),
        ("loss_spikes", 2.5, "2.500"),
        ("eval_winoground_group_before", 0.0, "0"),
        ("energy_j_per_sample", 0.25, "0.2500 J"),
        ("final_loss", 2.345678, "2.346"),
        ("final_loss", None, "–"),
        ("throughput", math.inf, "–"),
    ],
)
def test_a_value_is_printed_by_its_kind(name: str, value: float | None, text: str) -> None:
    assert quantity(value, metric_of(name)) == text


def linear(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, low, high, 1.0, 2, 3, linear=True)


@pytest.mark.parametrize(
    ("name", "better_by", "text"),
    [
        ("eval_accuracy_after", linear(0.03, 0.01, 0.05), "+0.030 (+0.010 to +0.050)"),
        ("eval_accuracy_after", linear(-0.03, -0.05, -0.01), "−0.030 (−0.050 to −0.010)"),
        ("eval_accuracy_after", linear(0.2502, 0.2502, 0.2502), "+0.250 (+0.250 to +0.250)"),
        ("eval_accuracy_after", linear(0.002, -0.001, 0.105), "+0.002 (−0.001 to +0.105)"),
        ("eval_accuracy_after", linear(0.0001, -0.0999, 0.1001), "0.00 (−0.10 to +0.10)"),
        ("loss_spikes", linear(3, -1, 7), "−3 (−7 to +1)"),
        ("loss_spikes", linear(9, 7.99, 10.01), "−9.0 (−10.0 to −8.0)"),
        ("loss_spikes", linear(8.333333, 3.2, 13.5), "−8.3 (−13.5 to −3.2)"),
        ("loss_spikes", linear(1234.5, 1200.5, 1268.5), "−1,234 (−1,268 to −1,200)"),
        ("loss_spikes", linear(9 + 1e-12, 8, 10 - 1e-12), "−9 (−10 to −8)"),
        ("data_wait_share", linear(0.02, 0.01, 0.03), "−2.0 points (−3.0 points to −1.0 points)"),
        ("communication_exposed_s", linear(0.0012, 0.0, 0.0024), "−1.2 ms (−2.4 ms to 0.0 ms)"),
        ("communication_exposed_s", linear(0.9, 0.7, 1.1), "−0.90 s (−1.10 s to −0.70 s)"),
        ("communication_exposed_s", linear(0.9, 0.8, 1.0), "−0.90 s (−1.00 s to −0.80 s)"),
        ("communication_exposed_s", linear(0.9, 0.81, 0.99), "−900 ms (−990 ms to −810 ms)"),
        ("final_loss", linear(1e-12, -2e-11, 2.2e-11), "0.000000000 (0.000000000 to 0.000000000)"),
        ("loss_spikes", linear(0, 0, 0), "0 (0 to 0)"),
        ("loss_spikes", estimate_from_mean(2, math.inf, 1, 1, LEVEL), "−2 (interval unknown)"),
        ("throughput", Estimate(1.17, 1.15, 1.19, 0.01, 2, 3), "x1.17 (1.15–1.19)"),
    ],
)
def test_a_comparison_reads_in_the_metrics_own_direction(name: str, better_by: Estimate, text: str) -> None:
    metric = metric_of(name)
    assert f"{change(better_by, metric)} {change_interval(better_by, metric)}" == text


@pytest.mark.parametrize(
    ("name", "estimate", "text"),
    [
        ("eval_accuracy_after", linear(0.0, -0.02, 0.02), "±0.02000"),
        ("data_wait_share", linear(0.2, 0.1, 0.3), "±10.0 points"),
        ("loss_spikes", linear(4, 1, 7), "±3"),
        ("loss_spikes", estimate_from_mean(4, math.inf, 1, 1, LEVEL), ""),
        ("throughput", Estimate(100, 98, 102, 0.01, 2), "±2.0 %"),
        ("throughput", Estimate(100, 0, math.inf, math.inf, 1), ""),
    ],
)
def test_a_spread_is_relative_for_rates_and_absolute_for_scores_and_counts(name: str, estimate: Estimate, text: str) -> None:
    assert spread(estimate, metric_of(name)) == text
