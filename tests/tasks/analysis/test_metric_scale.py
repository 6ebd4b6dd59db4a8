"""Scores and counts: arithmetic means and differences, 0 is 0, and fewer of what is bad wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.config.errors import ConfigError
from experiments.metric import Scale
from experiments.metrics import metric_of
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells, on_a_scale_for
from tasks.analysis.results import load_sweep
from tasks.report.model import make_report
from tasks.report.write import write_report
from tests.tasks.cell_support import comparison_in, table_in
from tests.tasks.fake_sweep import SUITE, Fake, as_suite, make_sweep

SCORE = "eval_winoground_group_before"


def sweep_of(root: Path, metric: str, fakes: list[Fake], **report: Any) -> Path:
    return make_sweep(root, fakes, suite={**SUITE, "report": {**SUITE["report"], "metric": metric, **report}})


def scored(workers: int, score: float, repeats: int = 3) -> Fake:
    axes = {"pool": "gpu", "model": "base", "dataloader_workers": workers}
    return Fake(axes, repeats=repeats, metrics={"winoground_group": score})


def windowed(workers: int, **window: Any) -> Fake:
    axes = {"pool": "gpu", "model": "base", "dataloader_workers": workers}
    return Fake(axes, repeats=3, window=window)


def cells_of(folder: Path) -> list[Cell]:
    sweep = load_sweep(folder)
    return make_cells(sweep.rows, sweep.plan.suite)


def test_a_score_of_0_is_0_and_is_compared_by_a_difference(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, SCORE, [scored(0, 0.0), scored(1, 0.25), scored(2, 0.01)])
    none, quarter, little = cells_of(folder)
    assert none.estimate is not None and (none.estimate.value, none.estimate.low, none.estimate.high) == (0.0, 0.0, 0.0)
    assert quarter.speedup is not None and (quarter.speedup.value, quarter.speedup.linear) == (pytest.approx(0.25), True)
    assert (quarter.verdict, little.verdict) == (Verdict.FASTER, Verdict.SAME)  # 0.01 is less than what matters
    table = table_in(folder)
    assert table.ratio == "the signed number is the difference from"
    cells = table.rows[0][1]
    assert [cell.value for cell in cells] == ["0", "0.2500", "0.01000"]
    assert [cell.speedup for cell in cells] == ["baseline", "+0.250 (+0.250 to +0.250)", "+0.0100 (+0.0100 to +0.0100)"]
    assert [cell.words for cell in cells] == ["", "", "same"]
    [winner] = make_report(load_sweep(folder)).winners
    assert winner.axes["dataloader_workers"] == 1
    assert "e-12" not in write_report(folder).markdown.read_text()


@pytest.mark.parametrize(
    ("metric", "key", "values", "shown"),
    [
        ("compile_seconds", "compile_seconds", (40.0, 20.0, 30.0), ["40.0 s", "20.0 s", "30.0 s"]),
        ("alloc_retries", "alloc_retries", (9, 0, 4), ["9", "0", "4"]),
        ("peak_memory_bytes", "peak_memory_bytes", (3 * 2**30, 2**29, 2**32), ["3.00 GiB", "512 MiB", "4.00 GiB"]),
    ],
)
def test_the_lowest_wins(tmp_path: Path, metric: str, key: str, values: tuple[float, ...], shown: list[str]) -> None:
    folder = sweep_of(tmp_path, metric, [windowed(workers, **{key: value}) for workers, value in enumerate(values)])
    report = make_report(load_sweep(folder))
    assert [winner.axes["dataloader_workers"] for winner in report.winners] == [1]
    assert report.headline.endswith("is best")
    assert [cell.value for cell in comparison_in(report).rows[0][1]] == shown
    assert [cell.verdict for cell in report.cells][1] is Verdict.FASTER


def test_a_difference_of_counts_reads_in_their_own_direction(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, "alloc_retries", [windowed(0, alloc_retries=9), windowed(1, alloc_retries=0)])
    assert table_in(folder).rows[0][1][1].speedup == "−9.0 (−10.0 to −8.0)"
    cell = cells_of(folder)[1]
    assert cell.speedup is not None and cell.speedup.value == pytest.approx(9)  # better by 9


def test_the_arithmetic_mean_of_a_score_and_the_geometric_one_of_a_rate(tmp_path: Path) -> None:
    fakes = [scored(0, 0.1, repeats=2)]
    folder = sweep_of(tmp_path, SCORE, fakes)
    rows = load_sweep(folder).rows
    rows[0].summary[SCORE], rows[1].summary[SCORE] = 0.1, 0.4
    rows[0].summary["compile_seconds"], rows[1].summary["compile_seconds"] = 10.0, 40.0
    score = make_cells(rows, as_suite({**SUITE, "report": {"metric": SCORE}}))[0].estimate
    rate = make_cells(rows, as_suite({**SUITE, "report": {"metric": "compile_seconds"}}))[0].estimate
    assert score is not None and score.value == pytest.approx(0.25)
    assert rate is not None and rate.value == pytest.approx(20.0)


def test_a_suites_own_smallest_effect_is_in_the_metrics_unit(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, SCORE, [scored(0, 0.0), scored(1, 0.25)], minimum_effect=0.3)
    assert cells_of(folder)[1].verdict is Verdict.SAME


def test_a_metric_of_ratios_falls_back_to_differences_where_a_value_has_none() -> None:
    loss = metric_of("final_loss")
    assert on_a_scale_for(loss, [0.5, 2.0]) is loss
    found = on_a_scale_for(loss, [0.0, 2.0], 0.1)
    assert (found.scale, found.minimum_effect, found.direction) == (Scale.LINEAR, pytest.approx(0.2), loss.direction)
    assert on_a_scale_for(loss, [0.0]).minimum_effect == 0.02


def test_nothing_wins_by_what_is_better_neither_high_nor_low(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, "mean_power_w", [windowed(0, energy_j=3000.0, wall_s=10.0), windowed(1, energy_j=6000.0, wall_s=10.0)])
    report = make_report(load_sweep(folder))
    assert report.answers == [] and report.headline == "mean power is better neither high nor low, so no cell wins."
    assert [cell.verdict for cell in report.cells] == [None, None]
    assert report.cells[1].speedup is not None and report.cells[1].speedup.value == pytest.approx(2.0)


def test_an_unknown_metric_is_refused_with_the_nearest(tmp_path: Path) -> None:
    folder = sweep_of(tmp_path, "thruput", [scored(0, 0.1)])
    with pytest.raises(ConfigError, match="did you mean 'throughput'"):
        cells_of(folder)
