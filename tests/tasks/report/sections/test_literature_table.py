"""The published table with our columns: the document's own values and speed-ups, ours per device, nothing claimed of another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.report.model import make_report
from tasks.report.sections.literature_table import published_table
from tasks.report.text_format import times
from tasks.report.write import write_report
from tests.tasks.fake_sweep import Fake, make_suite, make_sweep

SUITE: dict[str, Any] = {
    "baseline": {"batch_size": 32},
    "report": {
        "rows": ["model"],
        "columns": "batch_size",
        "metric": "throughput",
        "published": {"accelerator": "gaudi1", "batch": 32},
    },
}


def fake(batch: int, rate: float, *, model: str = "base", device: str = "NVIDIA H200", devices: int = 1, **more: Any) -> Fake:
    axes = {"pool": device.lower().replace(" ", "-"), "model": model, "batch_size": batch}
    settings = {"devices": devices, "batch_size": batch, "model": model}
    return Fake(axes, rate=rate, environment={"device_name": device}, parameters=settings, **{"workload": "bert", **more})


def rows_of(folder: Path, fakes: list[Fake], suite: dict[str, Any] = SUITE) -> tuple[list[str], dict[str, list[str]]]:
    table = make_report(load_sweep(make_sweep(folder, fakes, suite=suite))).published_table
    return list(table.header), {row[0]: list(row[1:]) for row in table.rows}


def test_the_documents_table_stands_above_ours(tmp_path: Path) -> None:
    fakes = [
        fake(32, 300),
        fake(64, 400),
        fake(64, 4000, device="Gaudi2 HL-225H", devices=8),
        fake(32, 100, model="tiny"),
        fake(64, 1, device="NVIDIA A100-SXM4-80GB", devices=8, outcome=Outcome.DOES_NOT_FIT, reason="out of memory"),
    ]
    header, rows = rows_of(tmp_path, fakes)
    theirs = ["gaudi1 x8, batch 32", "gaudi2 x8, batch 32", "gaudi2 x8, batch 64", "a100-80 x8, batch 32", "a100-80 x8, batch 64"]
    assert header[1:] == [*theirs, "NVIDIA H200, batch 32", "NVIDIA H200, batch 64"]
    assert rows["published, samples/s"] == ["520.2", "1,580.2", "1,835.8", "981.6", "1,082.6", "–", "–"]
    over = "speed-up over gaudi1 x8, batch 32"
    assert rows[f"published, {over}"] == ["x1.00", "x3.04", "x3.53", "x1.89", "x2.08", "–", "–"], "as the document has them"
    ours = rows["ours · fp32, samples/s"]
    assert [value != "–" for value in ours] == [False, False, True, False, False, True, True], "a cell without a value has no column"
    values = [float(value.replace(",", "")) for value in ours if value != "–"]
    expected = [times(value / 520.2 * devices) for value, devices in zip(values, (1, 8, 8), strict=True)]
    assert [value for value in rows[f"ours · fp32, {over}"] if value != "–"] == expected, "per device"
    assert "ours · tiny · fp32, samples/s" in rows and f"ours · tiny · fp32, {over}" not in rows


def test_a_latency_is_better_where_it_is_less(tmp_path: Path) -> None:
    suite = {
        **SUITE,
        "report": {**SUITE["report"], "metric": "latency_per_sample_s", "published": {"accelerator": "gaudi1", "batch": None}},
    }
    one = fake(8, 8 / 2.0, model="v1-4", workload="stable_diffusion", window={"trains": False}, waits=0.0)
    header, rows = rows_of(tmp_path, [one], suite)
    assert header[1:4] == ["gaudi1, batch 8", "gaudi2, batch 8", "a100-80, batch 1"]
    assert rows["published, s/image"][:3] == ["4.34", "1.19", "2.63"]
    found = float(rows["ours · fp32, s/image"][-1])
    assert rows["published, speed-up over gaudi1, batch 8"][:3] == ["x1.00", "x3.65", "x1.65"]
    assert rows["ours · fp32, speed-up over gaudi1, batch 8"][-1] == times(4.34 / found)


def test_reports_show_it_only_where_the_suite_asks(tmp_path: Path) -> None:
    plain = {**SUITE, "report": {**SUITE["report"], "published": None}}
    assert published_table([], make_suite(SUITE)).rows == []
    assert rows_of(tmp_path / "plain", [fake(32, 300)], plain)[1] == {}
    sweep_dir = make_sweep(tmp_path, [fake(32, 300)], suite=SUITE)
    write_report(sweep_dir)
    for name in ("report.md", "report.html"):
        assert "The published table, and ours" in (sweep_dir / name).read_text(), name
