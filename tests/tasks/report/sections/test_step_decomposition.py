"""Section: where a step's time goes."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.report.sections.step_decomposition import PART_NAMES, PART_SHARES, other_share
from tests.tasks.cell_support import column, report_of, row, workers


def test_where_a_steps_time_goes() -> None:
    shares = {"loader_wait_share": 0.3, "data_wait_share": 0.1, "h2d_share": 0.05, "forward_backward_share": 0.6, "optimizer_share": 0.2}
    rest: dict[str, Any] = {
        "step_time_median_s": 0.01,
        "step_time_p90_s": 0.02,
        "peak_memory_bytes": 3 * 2**30,
        "tflops_per_device": 123.46,
        "mfu": 0.4,
        "energy_j_per_sample": 1.234,
        "mean_power_w": 321.0,
        "time_to_first_step_s": 2.5,
        "compile_seconds": 30.0,
        "compile_cached_seconds": 4.5,
        "epoch_time_s": 5400.0,
    }
    rows = [
        row(workers(0), repeat=1, summary={**shares, **rest, "alloc_retries": 3}),
        row(workers(0), repeat=2, summary={**shares, **rest, "alloc_retries": 4, "data_wait_share": 0.12, "step_time_median_s": 0.03}),
        row(workers(1), summary={**shares, "h2d_share": None, "alloc_retries": 3}),
        row(workers(2), None, outcome=Outcome.CRASHED, summary=shares),
    ]
    table = report_of(rows).section("step_decomposition").table
    assert table.numeric and column(table, "cell") == ["MP-0", "MP-1"]
    assert dict(zip(table.header, table.rows[0], strict=True)) == {
        "cell": "MP-0",
        "step, median": "20.0 ms",
        "step, p90": "20.0 ms",
        "waits for host": "11.0 %",
        "copy to device": "5.0 %",
        "forward + backward": "60.0 %",
        "optimiser": "20.0 %",
        "other": "4.0 %",
        "host in loader": "30.0 %",
        "peak memory": "3.00 GiB",
        "alloc. retries": "3.50",
        "TFLOP/s / device": "123.5",
        "MFU": "40.0 %",
        "J / sample": "1.23",
        "power": "321 W",
        "first step": "2.50 s",
        "compile": "30.0 s",
        "compile, cached": "4.50 s",
        "epoch": "1.50 h",
    }
    second = dict(zip(table.header, table.rows[1], strict=True))
    assert (second["copy to device"], second["other"], second["alloc. retries"], second["power"]) == ("–", "–", "3", "–")
    assert "latency, p50" not in table.header, "a column of dashes is left out"


def test_percentiles_of_a_batchs_time_and_why_one_is_missing() -> None:
    def shown(**summary: float) -> dict[str, str]:
        table = report_of([row(workers(0), summary=summary)]).section("step_decomposition").table
        return dict(zip(table.header[1:], table.rows[0][1:], strict=True))

    assert shown(latency_p50_s=0.01, latency_p99_s=0.02) == {"latency, p50": "10.0 ms", "latency, p99": "20.0 ms"}
    assert shown(service_time_p50_s=0.01) == {"service time, p50": "10.0 ms", "service time, p99": "needs 1,000 batches"}


def test_inference_has_no_backward_pass_and_no_optimiser() -> None:
    shares = {"data_wait_share": 0.1, "h2d_share": 0.0, "forward_backward_share": 0.9, "optimizer_share": 0.0}
    table = (
        report_of([row(workers(0), summary={**shares, "latency_p50_s": 0.01, "latency_p99_s": 0.02})]).section("step_decomposition").table
    )
    shown = dict(zip(table.header, table.rows[0], strict=True))
    assert shown["forward"] == "90.0 %" and not {"forward + backward", "optimiser"} & set(shown)
    mixed = [row(workers(0), summary=shares), row(workers(1), summary={**shares, "latency_p50_s": 0.01})]
    both = report_of(mixed).section("step_decomposition").table
    assert column(both, "optimiser") == ["0.0 %", "–"] and "forward + backward" in both.header


def test_the_part_that_no_timer_saw() -> None:
    assert other_share([0.5, 0.25]) == pytest.approx(0.25)
    assert other_share([0.7, 0.4]) == 0.0, "timers may overlap"
    assert other_share([0.5, None]) is None


def test_each_part_of_a_step_has_a_name() -> None:
    assert dict(zip(PART_SHARES, PART_NAMES[:-1], strict=True)) == {
        "data_wait_share": "waits for host",
        "h2d_share": "copy to device",
        "forward_backward_share": "forward + backward",
        "optimizer_share": "optimiser",
    }
