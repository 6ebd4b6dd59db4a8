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
from tests.tasks.cell_support import published_of, repeats, row, settings
from tests.tasks.fake_sweep import Fake, as_suite, make_sweep

SUITE: dict[str, Any] = {
    "baseline": {"batch_size": 32},
    "report": {
        "rows": ["model"],
        "columns": "batch_size",
        "metric": "throughput",
        "published": {"accelerator": "gaudi1", "batch": 32},
    },
}


def fake(batch: int, rate: float, *, model: str = "base", device: str = "NVIDIA H200", devices: int = 8, **more: Any) -> Fake:
    axes = {"pool": device.lower().replace(" ", "-"), "model": model, "batch_size": batch}
    settings = {"devices": devices, "batch_size": batch, "model": model}
    return Fake(axes, rate=rate, environment={"device_name": device}, parameters=settings, **{"workload": "bert", **more})


def rows_of(folder: Path, fakes: list[Fake], suite: dict[str, Any] = SUITE) -> tuple[list[str], dict[str, list[str]]]:
    report = make_report(load_sweep(make_sweep(folder, fakes, suite=suite)))
    if "literature_table" not in report.section_names:
        return [], {}
    table = report.section("literature_table").table
    return list(table.header), {row[0]: list(row[1:]) for row in table.rows}


def test_the_documents_table_stands_above_ours(tmp_path: Path) -> None:
    fakes = [
        fake(32, 300),
        fake(64, 400),
        fake(64, 4000, device="Gaudi2 HL-225H"),
        fake(32, 100, model="tiny"),
        fake(32, 100, devices=4, device="NVIDIA L4"),
        fake(64, 1, device="NVIDIA A100-SXM4-80GB", outcome=Outcome.DOES_NOT_FIT, reason="out of memory"),
    ]
    header, rows = rows_of(tmp_path, fakes)
    theirs = ["gaudi1 x8, batch 32", "gaudi2 x8, batch 32", "gaudi2 x8, batch 64", "a100-80 x8, batch 32", "a100-80 x8, batch 64"]
    assert header[1:] == [*theirs, "NVIDIA H200 x8, batch 32", "NVIDIA H200 x8, batch 64"], "eight of the same model, as published"
    assert rows["published, samples/s"] == ["520.2", "1,580.2", "1,835.8", "981.6", "1,082.6", "–", "–"]
    over = "speed-up over gaudi1 x8, batch 32"
    assert rows[f"published, {over}"] == ["x1.00", "x3.04", "x3.53", "x1.89", "x2.08", "–", "–"], "as the document has them"
    ours = rows["ours · fp32, samples/s"]
    assert [value != "–" for value in ours] == [False, False, True, False, False, True, True], "a cell without a value has no column"
    values = [float(value.replace(",", "")) for value in ours if value != "–"]
    expected = [times(value / 520.2) for value in values]
    assert [value for value in rows[f"ours · fp32, {over}"] if value != "–"] == expected
    assert not [name for name in rows if "tiny" in name], "nor another model"


def test_a_latency_is_better_where_it_is_less(tmp_path: Path) -> None:
    suite = {
        **SUITE,
        "report": {**SUITE["report"], "metric": "latency_per_sample_s", "published": {"accelerator": "gaudi1", "batch": None}},
    }
    one = fake(
        8, 8 / 2.0, model="v1-4", devices=1, workload="stable_diffusion", window={"trains": False, "execution": "synchronous"}, waits=0.0
    )
    header, rows = rows_of(tmp_path, [one], suite)
    assert header[1:4] == ["gaudi1, batch 8", "gaudi2, batch 8", "a100-80, batch 1"]
    assert rows["published, s/image"][:3] == ["4.34", "1.19", "2.63"]
    found = float(rows["ours · fp32, s/image"][-1])
    assert rows["published, speed-up over gaudi1, batch 8"][:3] == ["x1.00", "x3.65", "x1.65"]
    assert rows["ours · fp32, speed-up over gaudi1, batch 8"][-1] == times(4.34 / found)


def test_reports_show_it_only_where_the_suite_asks(tmp_path: Path) -> None:
    plain = {**SUITE, "report": {**SUITE["report"], "published": None}}
    assert published_table([], as_suite(SUITE)).rows == []
    assert rows_of(tmp_path / "plain", [fake(32, 300)], plain)[1] == {}
    sweep_dir = make_sweep(tmp_path, [fake(32, 300)], suite=SUITE)
    write_report(sweep_dir)
    for name in ("report.md", "report.html"):
        assert "The published table, and ours" in (sweep_dir / name).read_text(), name


def columns_of(rows: list[Any], suite: Any) -> dict[str, dict[str, str]]:
    """Row of the table -> column -> value, of the places that hold one."""
    table = published_of(rows, suite)
    return {
        name: {column: value for column, value in zip(table.header[1:], values, strict=True) if value != "–"}
        for name, *values in table.rows
    }


def bert(batch: int | str, rate: float, *, pool: str = "h200", device: str | None = "NVIDIA H200", **more: Any) -> Any:
    parameters = {"model": "base", "devices": more.pop("devices", 8), "batch_size": batch, **more.pop("parameters", {})}
    facts = {"device_name": device} if device else {}
    return row({"pool": pool, "batch_size": batch}, rate, workload="bert", parameters=parameters, environment=facts, **more)


PUBLISHED = settings(rows=("pool",), columns="batch_size", baseline={}, published={"accelerator": "gaudi1", "batch": 32})
OVER = "speed-up over gaudi1 x8, batch 32"


def test_speedups_are_by_the_column_that_is_asked_for() -> None:
    found = columns_of([bert(32, 1040.4), bert(64, 2080.8)], PUBLISHED)
    assert found["ours, samples/s"] == {"NVIDIA H200 x8, batch 32": "1,040.4", "NVIDIA H200 x8, batch 64": "2,080.8"}
    assert found[f"ours, {OVER}"] == {"NVIDIA H200 x8, batch 32": "x2.00", "NVIDIA H200 x8, batch 64": "x4.00"}
    other = settings(rows=("pool",), columns="batch_size", baseline={}, published={"accelerator": "gaudi2", "batch": None})
    assert columns_of([bert(32, 1580.2)], other)["ours, speed-up over gaudi2 x8, batch 32"] == {"NVIDIA H200 x8, batch 32": "x1.00"}
    nobody = settings(rows=("pool",), columns="batch_size", baseline={}, published={"accelerator": "gaudi1", "batch": 33})
    assert columns_of([bert(32, 100.0)], nobody) == {}


def test_our_columns_have_the_batch_that_was_found_and_the_device_that_was_met() -> None:
    found = columns_of([bert("max", 100.0, summary={"batch_size": 48})], PUBLISHED)
    assert list(found["ours, samples/s"]) == ["NVIDIA H200 x8, batch 48"]
    assert list(columns_of([bert("max", 100.0)], PUBLISHED)["ours, samples/s"]) == ["NVIDIA H200 x8"]
    assert list(columns_of([bert(32, 100.0, device=None)], PUBLISHED)["ours, samples/s"]) == ["cpu x8, batch 32"]
    a100 = bert(32, 100.0, device="NVIDIA A100-SXM4-80GB")
    assert list(columns_of([a100], PUBLISHED)["ours, samples/s"]) == ["a100-80 x8, batch 32"]


def test_two_pools_of_one_accelerator_have_a_row_each() -> None:
    found = columns_of([bert(32, 100.0), bert(32, 200.0, pool="other")], PUBLISHED)
    assert found["ours, samples/s"] == {"NVIDIA H200 x8, batch 32": "100"}
    assert found["ours · other, samples/s"] == {"NVIDIA H200 x8, batch 32": "200"}


def test_rows_are_named_by_what_varies_besides_the_columns() -> None:
    parameters = {"precision": "bf16", "batch_size": 32, "devices": 8}
    rows = [
        row({"pool": "h200", "model": model, "compile": compiled}, rate, workload="bert", parameters=parameters)
        for model, compiled, rate in (("base", "none", 10.0), ("base", "layer", 20.0), ("large", "none", 30.0))
    ]
    found = columns_of(rows, settings(rows=("model",), columns="compile", baseline={}, published={"accelerator": "gaudi1", "batch": 32}))
    ours = [name for name in found if name.startswith("ours")]
    assert ours == [
        "ours · bf16 · compile none, samples/s",
        f"ours · bf16 · compile none, {OVER}",
        "ours · bf16 · compile layer, samples/s",
        f"ours · bf16 · compile layer, {OVER}",
    ]


def test_emulated_cells_and_cells_without_a_value_have_no_place() -> None:
    rows = [bert(32, 100.0, outcome=Outcome.CRASHED), bert(64, 200.0)]
    assert list(columns_of(rows, PUBLISHED)["ours, samples/s"]) == ["NVIDIA H200 x8, batch 64"]
    repeated = repeats({"pool": "h200", "batch_size": 8}, 104.0, workload="bert", parameters={"model": "base", "devices": 8})
    assert columns_of(repeated, PUBLISHED)["ours, samples/s"] == {"cpu x8, batch 8": "104"}, "the mean of its repeats"


def published_by(accelerator: str, batch: int | None, metric: str = "throughput") -> Any:
    return settings(columns="batch_size", baseline={}, metric=metric, published={"accelerator": accelerator, "batch": batch})


def test_of_two_published_values_for_one_column_the_first_stays() -> None:
    ours = row({"pool": "h200"}, workload="bridgetower", parameters={"model": "large", "devices": 8, "batch_size": 48})
    assert columns_of([ours], published_by("gaudi2", 48))["published, samples/s"]["gaudi2 x8, batch 48"] == "581.5"


def test_ours_stand_in_the_documents_unit() -> None:
    """An epoch of 1170 s is 0.325 h: twice as fast as 0.65 h, a time having no number of devices."""
    suite = published_by("a100-40", 70, "epoch_time_s")
    ours = row({"pool": "h200"}, 1170.0, metric="epoch_time_s", workload="vit", parameters={"model": "h16", "batch_size": 70, "devices": 8})
    found = columns_of([ours], suite)
    assert found["ours, h"] == {"cpu x8, batch 70": "0.325"}
    assert found["ours, speed-up over a100-40 x8, batch 70"] == {"cpu x8, batch 70": "x2.00"}


def test_a_batch_that_fits_is_compared_as_it_is() -> None:
    suite = published_by("a100-40", 20, "batch_size")
    ours = row(
        {"pool": "h200"}, 60.0, metric="batch_size", workload="flava", parameters={"model": "10b", "batch_size": "max", "devices": 8}
    )
    assert columns_of([ours], suite)["ours, speed-up over a100-40 x8, batch 20"] == {"cpu x8, batch 60": "x3.00"}


def test_what_is_emulated_does_not_stand_beside_what_was_published() -> None:
    table = published_of([bert(32, 100.0, emulated=True)], PUBLISHED, emulated=True)
    assert table.rows == []
