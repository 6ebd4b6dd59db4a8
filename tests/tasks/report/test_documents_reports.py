"""The reports of the documents' suites, of made-up numbers: their figures, absent points, and what was published beside the right cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.trial import Outcome
from experiments.workloads.flava.parameters import SIZES
from tasks.analysis.results import load_sweep
from tasks.report.model import Report, make_report
from tasks.report.write import write_report
from tests.tasks.cell_support import comparison_in
from tests.tasks.fake_sweep import Fake, make_sweep

RATES = {"baseline": 500.0, "amp": 640.0, "fsdp": 660.0, "multi_tensor": 700.0, "pooled": 710.0, "sequence_first": 760.0, "256px": 600.0}
GIGA = {"256px": 999.6, "full_fp16": 999.6}


def written(folder: Path, suite: str, made_up: Callable[[dict[str, Any]], dict[str, Any]], **options: Any) -> tuple[Report, Path]:
    """A sweep of all cells of a suite's profile, each with what `made_up` says of its parameters."""
    loaded = load_suite(suite, pools=load_pools(), **options)
    fakes = []
    for cell in expand(loaded):
        told = made_up(cell.parameters)
        parameters = {**cell.parameters, **told.pop("parameters", {})}
        fakes.append(Fake(dict(cell.axes), parameters=parameters, workload=suite, steps=20, evaluations=False, **told))
    sweep_dir = make_sweep(folder, fakes, suite=loaded.model_dump(mode="json"))
    write_report(sweep_dir)
    return make_report(load_sweep(sweep_dir)), sweep_dir


def vit(parameters: dict[str, Any]) -> dict[str, Any]:
    rung = parameters["rung"]
    return {
        "rate": RATES.get(rung, 700.0),
        "parameters": {"devices": 8},  # as published
        "window": {"flops_per_sample": GIGA.get(rung, 763.5) * 1e9, "epoch_samples": 1_281_167},
        "environment": {"device_name": "NVIDIA H200", "device_kind": "cuda"},
    }


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    return written(tmp_path_factory.mktemp("vit"), "vit", vit, profile="gpus")


def test_the_ladder_is_a_row_for_each_rung_with_its_speed_up(ladder: tuple[Report, Path]) -> None:
    report, _ = ladder
    rungs = [names[1] for names, _ in comparison_in(report).rows]
    assert rungs[:7] == list(RATES), "in the suite's order"
    cells = {names[1]: cells[0] for names, cells in comparison_in(report).rows}
    assert cells["baseline"].speedup == "baseline" and cells["baseline"].value.endswith(" TFLOP/s")
    assert cells["sequence_first"].change.split()[0] in ("x1.52", "x1.51") and cells["sequence_first"].words == "undecided, unproven"
    for rung in ("256px", "full_fp16"):
        assert cells[rung].speedup == ""
        assert "not compared with the baseline, which does other work: image_size 256, there default" in cells[rung].notes
    assert [answer.work for answer in report.answers] == ["image_size default", "image_size 256"]
    assert not any("also differs" in note for cell in cells.values() for note in cell.notes), "a rung is what it sets"
    assert dict(report.section("settings").table.rows)["multi_tensor"].split(", ") == [  # type: ignore[arg-type]
        *("fsdp_reshard false", "fsdp_units root", "optimizer foreach", "parallel fsdp2", "precision fp16")
    ]


def test_each_published_value_of_the_ladder_stands_beside_its_rung(ladder: tuple[Report, Path]) -> None:
    report, _ = ladder
    found = [(row[2], row[3].split(" · ")[-1], row[4]) for row in report.section("nearest_literature").table.rows]
    rungs = {"x1.51": "sequence_first", "x1.83": "sequence_first", "x1.86": "256px", "x2.18": "full_fp16"}
    assert {theirs: row[3] for row in report.section("nearest_literature").table.rows if (theirs := row[2]) in rungs} == {
        theirs: f"{rung} over baseline" for theirs, rung in rungs.items()
    }
    hours = {near: float(ours.split()[0]) for theirs, near, ours in found if theirs.endswith(" h")}
    assert [theirs for theirs, *_ in found if theirs.endswith(" h")] == ["0.4300 h", "0.6500 h"], "as published, on as many devices"
    assert [near for theirs, near, _ in found if theirs.endswith(" h")] == ["sequence_first", "baseline"]
    assert hours["baseline"] == pytest.approx(1_281_167 / 500 / 3600, rel=0.01)
    epoch = report.section("step_decomposition").table.header.index("epoch")
    assert float(report.section("step_decomposition").table.rows[0][epoch].removesuffix(" h")) == pytest.approx(hours["baseline"], rel=0.01)
    for row in report.section("nearest_literature").table.rows:
        assert "device a100-40, ours NVIDIA H200" in row[5] and ("devices 64, ours 8" in row[5]) == (row[2] == "x1.83")
        assert "devices 8" not in row[5] and ("in TFLOP/s" in row[4]) == (row[2] in ("x1.86", "x2.18")), "at 256 pixels: other work"


def test_the_figures_of_the_ladder_show_what_was_published(ladder: tuple[Report, Path]) -> None:
    _, sweep_dir = ladder
    relative, absolute, epochs = ((sweep_dir / "figures" / f"suite-{at}.svg").read_text() for at in (1, 2, 3))
    assert "published, a100-40 x8" in relative and "x64" not in relative and "x1.00" in relative
    assert relative.count("other work") >= 2, "the two rungs at 256 pixels have no bar"
    assert "published" not in absolute and "TFLOP/s per device" in absolute
    assert "published, a100-40 x8" in epochs and "x64" not in epochs


def does_not_fit(parameters: dict[str, Any]) -> bool:
    _, _, _, layers, *_ = SIZES[str(parameters["model"])]
    return layers >= 64 and parameters["parallel"] == "ddp"


def test_what_does_not_fit_is_absent_from_both_figures_of_flava_with_its_reason(tmp_path: Path) -> None:
    def made_up(parameters: dict[str, Any]) -> dict[str, Any]:
        if does_not_fit(parameters):
            return {"outcome": Outcome.DOES_NOT_FIT, "reason": "CUDA out of memory (made up)"}
        found = 20 if parameters["batch_size"] == "max" else 8
        return {"window": {"batch_size": found, "alloc_retries": 3 if parameters["strategy"] == "fsdp2" else 0}}

    report, sweep_dir = written(tmp_path, "flava", made_up, only={"model": ["4.8b", "10b"], "strategy": ["ddp", "fsdp2", "fsdp2+ac"]})
    assert comparison_in(report).columns == ["ddp", "fsdp2", "fsdp2+ac"]
    absent = {(names[1], names[2]) for names, cells in comparison_in(report).rows if cells[0].outcome == "does not fit"}
    assert absent == {("10b", "8"), ("10b", "max")}
    assert all("CUDA out of memory" in cells[0].reason for names, cells in comparison_in(report).rows if names[1] == "10b")
    throughput, batches = ((sweep_dir / "figures" / f"suite-{at}.svg").read_text() for at in (1, 3))
    assert not (sweep_dir / "figures" / "suite-2.svg").exists(), "no FSDP1 here"
    assert throughput.count("does not fit") == 2 and batches.count("does not fit") == 1
    assert "published, a100-40 x8" in batches, "20 samples with FSDP and checkpointing"
    retries = report.section("step_decomposition").table.header.index("alloc. retries")
    assert {row[retries] for row in report.section("step_decomposition").table.rows if row[0].endswith("fsdp2")} == {"3"}
    beside = [(row[2], row[3].split(" · ")[-1], row[4]) for row in report.section("nearest_literature").table.rows]
    assert beside[0] == ("20 samples", "fsdp2+ac", "20 samples")
    assert beside[1:] == [("x3", "ddp", "more than x1.00"), ("x10", "ddp", "more than x1.00")], "10b fits where it does not with DDP"
    assert "confounders" not in report.section_names or all(row[0] == "build_on" for row in report.section("confounders").table.rows)
    assert "scaling" not in report.section_names, "one number of devices, nothing known of their communication: no table of dashes"
