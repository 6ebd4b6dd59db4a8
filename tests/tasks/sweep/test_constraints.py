"""Limits as the command line has them."""

from __future__ import annotations

import pytest

from experiments.config.errors import ConfigError
from tasks.sweep.constraints import Constraint, parse_constraint


@pytest.mark.parametrize(
    ("text", "metric", "sign", "limit"),
    [
        ("peak_memory_bytes<=70GB", "peak_memory_bytes", "<=", 70e9),
        ("peak_memory_bytes <= 2 GiB", "peak_memory_bytes", "<=", 2 * 2**30),
        ("peak_memory_bytes<=512MiB", "peak_memory_bytes", "<=", 512 * 2**20),
        ("peak_memory_bytes<=1e9", "peak_memory_bytes", "<=", 1e9),
        ("latency_p99_s<=50ms", "latency_p99_s", "<=", 0.05),
        ("latency_p99_s<=0.05", "latency_p99_s", "<=", 0.05),
        ("latency_p99_s<=.2s", "latency_p99_s", "<=", 0.2),
        ("data_wait_share<=5%", "data_wait_share", "<=", 0.05),
        ("mfu>=0.4", "mfu", ">=", 0.4),
        ("throughput>=100samples/s", "throughput", ">=", 100.0),
        ("mean_power_w<=350W", "mean_power_w", "<=", 350.0),
        ("alloc_retries<=0", "alloc_retries", "<=", 0.0),
        ("eval_accuracy_after>=0.9", "eval_accuracy_after", ">=", 0.9),
    ],
)
def test_limits_with_and_without_units(text: str, metric: str, sign: str, limit: float) -> None:
    found = parse_constraint(text)
    assert (found.metric, found.sign, found.limit) == (metric, sign, pytest.approx(limit))
    again = parse_constraint(found.text)
    assert (again.metric, again.sign, again.limit) == (metric, sign, pytest.approx(limit)), "its text asks for the same again"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("peak_memory<=1GB", "did you mean 'peak_memory_bytes'"),
        ("rms.patch<=1", "no single figure"),
        ("peak_memory_bytes", "is no constraint"),
        ("peak_memory_bytes<70GB", "< is no sign"),
        ("peak_memory_bytes==70GB", "== is no sign"),
        ("peak_memory_bytes<=70ms", "'70ms' is no value of peak_memory_bytes; a number, without a unit or in B"),
        ("latency_p99_s<=5%", "is no value"),
        ("latency_p99_s<=fast", "is no value"),
        ("latency_p99_s<=nan", "is no value"),
        ("latency_p99_s<=0", "is always more than 0"),
        ("peak_memory_bytes<=-1GB", "is always more than 0"),
        ("peak_memory_bytes<=1e999", "is always more than 0 and finite"),
    ],
)
def test_what_is_wrong_with_a_limit_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_constraint(text)
    assert caught.value.file == "--where" and said in str(caught.value)


def test_a_limit_is_kept_in_a_plan() -> None:
    limit = Constraint(metric="peak_memory_bytes", sign="<=", limit=7e10)
    assert Constraint.model_validate_json(limit.model_dump_json()) == limit and limit.text == "peak_memory_bytes<=70000000000"
