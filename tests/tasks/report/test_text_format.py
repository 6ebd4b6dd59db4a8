"""Numbers as people read them, at the edges where the way of writing changes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from tasks.report.text_format import (
    amount,
    clock,
    code_spans,
    devices_told,
    ended,
    interval,
    listed,
    number,
    percent,
    plural,
    ratio_with_interval,
    seconds,
    size,
    spread,
    times,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("such as `--set warmup_s=2`.", [("such as ", False), ("--set warmup_s=2", True), (".", False)]),
        ("`a` and `b`", [("a", True), (" and ", False), ("b", True)]),
        ("one ` alone", [("one ` alone", False)]),
        ("`` ` ` none", [("`` ` ` none", False)]),
        ("", []),
    ],
)
def test_what_stands_in_backquotes_is_code(text: str, parts: list[tuple[str, bool]]) -> None:
    assert list(code_spans(text)) == parts


def estimate(low: float, high: float, value: float = 1.0, se: float = 0.01) -> Estimate:
    return Estimate(value, low, high, se, 2)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (581.5, 4, "581.5"),
        (12.346, 4, "12.35"),
        (0.012345, 4, "0.01235"),
        (1234567.0, 4, "1,234,567"),
        (9999.6, 4, "10,000"),
        (99.99999, 4, "100.0"),
        (-99.995, 4, "-100.0"),
        (99.994, 4, "99.99"),
        (0.99996, 4, "1.000"),
        (9.996, 3, "10.0"),
        (9.994, 3, "9.99"),
        (9.6e-10, 1, "0.000000001"),
        (9.99e-7, 4, "9.990e-07"),
        (9.9996e-7, 4, "0.000001000"),
        (-12.346, 3, "-12.3"),
        (0.0, 3, "0"),
        (1.0, 3, "1.00"),
        (1e-6, 4, "0.000001000"),
        (1.234e-7, 4, "1.234e-07"),
        (None, 4, "–"),
        (math.nan, 4, "–"),
        (math.inf, 4, "–"),
    ],
)
def test_significant_digits(value: float | None, digits: int, text: str) -> None:
    assert number(value, digits) == text


def test_how_many_ended_so() -> None:
    told = [ended(1, "does_not_fit"), ended(2, "does_not_fit"), ended(2, "crashed"), ended(1, "without the metric")]
    assert told == ["1 does not fit", "2 do not fit", "2 crashed", "1 without the metric"]


def test_four_digits_unless_asked() -> None:
    assert number(1.23456) == "1.235"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0123, "1.2 %"),
        (0.9949, "99.5 %"),
        (0.9951, "100 %"),
        (-0.9951, "-100 %"),
        (2.0, "200 %"),
        (0.0, "0.0 %"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "12.3 ms"), (0.9994, "999 ms"), (1.0, "1.00 s"), (-2.5, "-2.50 s"), (None, "–"), (math.inf, "–")]
)
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2**30 - 1, "1024 MiB"), (2**30, "1.00 GiB"), (3 * 2**29, "1.50 GiB"), (2**20, "1 MiB"), (None, "–"), (math.nan, "–")],
)
def test_size(value: float | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.25, "s", "250 ms"),
        (2**31, "B", "2.00 GiB"),
        (1024.0, "samples", "1,024 samples"),
        (12.5, "samples", "12.50 samples"),
        (581.49, "samples/s", "581.5 samples/s"),
        (0.5, "", "0.5000"),
    ],
)
def test_amount(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def test_spread_is_half_the_interval_over_the_value() -> None:
    assert spread(estimate(98.0, 102.0, 100.0), metric_of("throughput")) == "±2.0 %"
    assert spread(estimate(0.9996, 1.0004), metric_of("throughput")) == "±<0.1 %"
    assert spread(estimate(0.9994, 1.0006), metric_of("throughput")) == "±0.1 %"
    assert spread(estimate(0.0, math.inf), metric_of("throughput")) == ""
    assert spread(estimate(0.5, 1.5), metric_of("throughput")) == "±50.0 %"
    assert spread(estimate(0.5, 1.51), metric_of("throughput")) == "(interval too wide to use)", "wider than the value"
    assert spread(replace(estimate(-1.0, 2.0, 0.1), linear=True), metric_of("eval_winoground_group_before")).startswith("±1.5"), "may be 0"


def test_times() -> None:
    assert [times(value) for value in (0.5, 1.166, 9.994, 10.0, 12.34, 123.4)] == ["x0.50", "x1.17", "x9.99", "x10.0", "x12.3", "x123"]


def test_a_narrow_interval_has_a_digit_more() -> None:
    assert interval(estimate(1.15, 1.19)) == "(1.15–1.19)"
    assert interval(estimate(1.1501, 1.1691)) == "(1.150–1.169)"
    assert interval(estimate(1.1501, 1.1711)) == "(1.15–1.17)"
    assert interval(estimate(0.0, math.inf, se=math.inf)) == "(interval unknown)"
    assert interval(estimate(0.1, 10.0)) == "(0.10–10.00)"
    assert interval(estimate(0.1, 10.01)) == interval(estimate(0.0, 1e130)) == "(interval too wide to use)"


def test_a_ratio_has_the_decimals_of_its_interval() -> None:
    assert ratio_with_interval(estimate(1.0822, 1.0934, 1.0871)) == "x1.087 (1.082–1.093)"
    assert ratio_with_interval(estimate(1.1501, 1.1699, 1.16)) == "x1.160 (1.150–1.170)"
    assert ratio_with_interval(estimate(1.15, 1.1701, 1.16)) == "x1.16 (1.15–1.17)"
    assert ratio_with_interval(estimate(8.19, 12.28, 10.03)) == "x10.0 (8.2–12.3)"
    assert ratio_with_interval(estimate(99.99, 100.005, 100.0)) == "x100.000 (99.990–100.005)"
    assert ratio_with_interval(estimate(90.0, 110.0, 100.0)) == "x100 (90–110)"
    assert ratio_with_interval(estimate(1.0, 1.0, 1.005, se=math.inf)) == "x1.00 (interval unknown)"
    assert ratio_with_interval(estimate(0.0, 0.01, 0.005)) == "x0.01 (interval too wide to use)"


def test_counts_and_lists() -> None:
    assert [plural(count, "cell") for count in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert [plural(count, "process") for count in (0, 1, 2)] == ["0 processes", "1 process", "2 processes"]
    letters = list("abcdefg")
    assert [listed(letters[:count]) for count in (0, 1, 2, 3, 6)] == ["", "a", "a and b", "a, b and c", "a, b, c, d, e and f"]
    assert listed(letters) == "a, b, c, d, e and 2 more"
    assert listed(letters, 4) == "a, b, c and 4 more"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (65, "1:05"), (3599, "59:59"), (3600, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_seconds_read_as_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"NVIDIA H200": {1}}, "NVIDIA H200"),
        ({"NVIDIA H200": {2}}, "2 NVIDIA H200"),
        ({"NVIDIA H200": {4, 1, 2}, "AMD EPYC": [1, 1]}, "1, 2 and 4 NVIDIA H200; AMD EPYC"),
        ({}, ""),
    ],
)
def test_devices_with_how_many_a_trial_had(counts: dict[str, set[int]], told: str) -> None:
    assert devices_told((name, count) for name, each in counts.items() for count in each) == told
