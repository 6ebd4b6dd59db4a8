"""Two tables of the report: throughput by devices with the communication share, and the traced steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.analysis.results import load_sweep
from tasks.report.model import make_report
from tasks.report.write import write_report
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep

PROFILE = {
    "where": "device",
    "steps": 2,
    "span_s": 0.2,
    "idle_s": 0.02,
    "groups": [{"group": "matrix products", "seconds": 0.1, "calls": 12.0, "top": "nvjet|<b>"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cost = {"alone_s": 0.018, "with_s": 0.27, "without_s": 0.257, "step_s": 0.26}
    fakes = [
        Fake({"pool": "cpu", "precision": "fp32", "devices": 4}, rate=380.0, window={"communication": cost}),
        Fake({"pool": "cpu", "precision": "fp32", "devices": 1}, window={"profile": PROFILE}),
        Fake({"pool": "cpu", "precision": "bf16", "devices": 1}, rate=150.0),
    ]
    return make_sweep(tmp_path_factory.mktemp("scaling"), fakes, suite={**SUITE, "baseline": {"devices": 1}})


def test_scaling_is_over_the_fewest_devices_and_cells_on_one_alone_have_no_row(folder: Path) -> None:
    table = make_report(load_sweep(folder)).scaling
    assert [row[:2] for row in table.rows] == [["cpu · fp32 · devices 1", "1"], ["cpu · fp32 · devices 4", "4"]]
    one, four = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert one["speed-up"] == one["efficiency"] == one["communication share"] == "–"
    assert four["speed-up"].startswith("x3.8") and float(four["efficiency"].split()[0]) == pytest.approx(95, abs=0.5)
    assert (four["all-reduce alone"], four["exposed"], four["communication share"]) == ("18.0 ms", "13.0 ms", "5.0 %")


def test_the_traced_steps_stand_in_both_reports(folder: Path) -> None:
    table = make_report(load_sweep(folder)).profile
    assert table.rows == [
        ["cpu · fp32 · devices 1", "matrix products", "100 ms", "50.0 %", "12.0", "nvjet|<b>"],
        ["cpu · fp32 · devices 1", "nothing (device idle)", "20.0 ms", "10.0 %", "–", "–"],
    ]
    paths = write_report(folder)
    assert "## What ran in the traced steps" in paths.markdown.read_text() and r"nvjet\|\<b\>" in paths.markdown.read_text()
    assert "What ran in the traced steps" in paths.html.read_text() and "nvjet|&lt;b&gt;" in paths.html.read_text()


def test_a_rate_of_each_device_scales_by_their_number(tmp_path: Path) -> None:
    window = {"flops_per_sample": 1e12}  # the made-up window is of one rank: its rate is a device's
    fakes = [Fake({"pool": "cpu", "devices": n}, rate=rate, window=window) for n, rate in ((1, 100.0), (2, 98.0), (4, 95.0))]
    suite = {**SUITE, "baseline": {"devices": 1}, "report": {**SUITE["report"], "columns": "devices", "metric": "tflops_per_device"}}
    table = make_report(load_sweep(make_sweep(tmp_path, fakes, suite=suite))).scaling
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [row["rate"].split()[1] for row in rows] == ["TFLOP/s"] * 3
    assert [float(row["speed-up"].split()[0].removeprefix("x")) for row in rows[1:]] == pytest.approx([1.96, 3.8], abs=0.02)
    assert [float(row["efficiency"].split()[0]) for row in rows[1:]] == pytest.approx([98, 95], abs=0.5)
