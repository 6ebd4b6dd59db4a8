"""Cells as plain data: the numbers of the report, and null where nothing is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.price import COST
from experiments.trial import Outcome
from tasks.analysis.cell_records import cell_records, simulated
from tasks.analysis.looks import judged_cells
from tasks.analysis.results import load_sweep
from tasks.report.model import report_source
from tests.tasks.cell_support import made, repeats, row, settings, workers
from tests.tasks.fake_sweep import Fake, make_sweep
from tests.tasks.plan_support import make_trial
from tests.tasks.price_support import priced


def test_a_cell_has_its_value_its_ratio_and_its_verdict() -> None:
    cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0, (0.02, 0.0, -0.02))])
    base, faster = cell_records("s", cells)
    assert (base["name"], base["axis.dataloader_workers"], base["repeats"]) == ("cpu · MP-0", 0, 3)
    assert (base["estimate"], base["unit"], base["metric"]) == (pytest.approx(100.0), "samples/s", "throughput")
    assert base["baseline"] == base["cell"] == faster["baseline"]
    assert (base["ratio"], base["ratio_low"], base["compared_by"], base["verdict"]) == (None, None, None, None)
    found = cells[1].speedup
    assert found is not None
    assert (faster["ratio"], faster["ratio_low"], faster["ratio_high"]) == (found.value, found.low, found.high)
    assert (faster["verdict"], faster["compared_by"], faster["claimed"]) == ("faster", "ratio", True)
    assert COST not in base and "currency" not in base


def test_what_is_not_known_is_null_never_infinite() -> None:
    [single, failed] = cell_records("s", made([row(workers(0), 100.0), row(workers(1), None, outcome=Outcome.DOES_NOT_FIT, reason="big")]))
    assert (single["estimate"], single["low"], single["high"]) == (pytest.approx(100.0), None, None)
    assert (failed["estimate"], failed["outcome"], failed["reason"], failed["repeats"]) == (None, "does_not_fit", "big", 0)


def test_scores_are_compared_by_differences() -> None:
    metric = "eval_accuracy_after"
    rows = [one for count in (0, 1) for one in (row(workers(count), 0.5 + 0.1 * count, metric=metric, repeat=at) for at in (1, 2, 3))]
    _, better = cell_records("s", made(rows, settings(metric=metric)))
    assert (better["compared_by"], better["ratio"]) == ("difference", pytest.approx(0.1))


def test_costs_stand_there_where_a_price_is_known() -> None:
    rows = [*priced(repeats(workers(0), 100.0)), *repeats(workers(1), 150.0, summary={"energy_j_per_sample": 3.6})]
    first, second = cell_records("s", made(rows))
    assert (first[COST], first["currency"], second[COST], second["currency"]) == (pytest.approx(10.0), "USD", None, None)
    assert first[f"{COST}_low"] < 10.0 < first[f"{COST}_high"]  # type: ignore[operator]
    assert second["energy_kwh_per_million_samples"] == pytest.approx(1.0)


def test_simulated_arithmetic_is_named() -> None:
    assert simulated(make_trial(parameters={"precision": "fp8_simulated"})) == "precision: fp8_simulated"
    assert simulated(make_trial(parameters={"precision": "bf16", "linear": "fp8_simulated"})) == "linear: fp8_simulated", (
        "of an earlier sweep"
    )
    assert simulated(make_trial(parameters={"precision": "fp8"})) is None


def test_the_cells_are_those_of_the_report(tmp_path: Path) -> None:
    fakes = [Fake({"pool": "cpu", "model": "m", "dataloader_workers": count}, rate=100 + 40 * count, repeats=3) for count in (0, 1)]
    emulated = [Fake({"pool": "cpu", "model": "m", "dataloader_workers": 2}, emulated=True, repeats=3)]
    sweep = load_sweep(make_sweep(tmp_path, [*fakes, *emulated]))
    for kind in (False, True):
        mine, report = judged_cells(sweep, emulated=kind), report_source(sweep, emulated=kind).cells
        assert [(cell.trial.cell, cell.estimate, cell.speedup, cell.verdict) for cell in mine] == [
            (cell.trial.cell, cell.estimate, cell.speedup, cell.verdict) for cell in report
        ]
        assert [record["emulated"] for record in cell_records("s", mine)] == [kind] * (1 if kind else 2)
