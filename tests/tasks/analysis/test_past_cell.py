"""By what a cell is found again in other sweeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.analysis.past_cell import PastCell, past_cell
from tasks.analysis.results import load_sweep
from tests.tasks.fake_sweep import Fake, make_sweep
from tests.tasks.spread_support import have_defaults

AXES = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}
CELL = PastCell(workload="bridgetower", parameters={"precision": "bf16", "steps": 100})  # 100 is its default


def of_cell(**changes: Any) -> str:
    return CELL.model_copy(update=changes).identity


def test_a_further_parameter_with_a_default_changes_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of_cell()
    have_defaults(monkeypatch, newer=3)
    assert of_cell() == before
    assert of_cell(parameters={**CELL.parameters, "newer": 3}) == before
    assert of_cell(parameters={**CELL.parameters, "newer": 4}) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": "bert"},
        {"parameters": {"precision": "bf16", "steps": 101}},
        {"parameters": {"steps": 100}},
        {"parameters": {**CELL.parameters, "of_no_schema": 1}},
        {"lock_clocks_mhz": 1200},
        {"environment": "torch210"},
        {"commit": "c" * 40},
    ],
    ids=str,
)
def test_other_work_is_another_cell(changes: dict[str, Any]) -> None:
    assert of_cell(**changes) != of_cell()
    assert of_cell(parameters={"precision": "bf16"}) == of_cell(), "100 steps are the default"


def test_of_a_workload_that_is_gone_all_parameters_count() -> None:
    assert of_cell(workload="gone", parameters={"precision": "bf16"}) != of_cell(workload="gone")


@pytest.mark.parametrize("batch", [64, 66])
def test_max_is_the_batch_that_it_came_to_and_the_seed_is_no_part(tmp_path: Path, batch: int) -> None:
    fakes = [Fake(AXES, parameters={"batch_size": "max"}, window={"batch_size": batch}, repeats=2)]
    rows = load_sweep(make_sweep(tmp_path, fakes)).rows
    assert [row.trial.parameters["seed"] for row in rows] == [0, 1]
    expected = {"devices": 1, "batch_size": batch, "precision": "fp32", "warmup_steps": 5, "dataloader_workers": 0}
    assert [past_cell(row) for row in rows] == [PastCell(workload="bridgetower", parameters=expected)] * 2


def test_a_cell_is_of_its_commit_environment_and_clock(tmp_path: Path) -> None:
    [row] = load_sweep(make_sweep(tmp_path, [Fake(AXES)])).rows
    special = {"commit": "c" * 40, "environment": "torch210", "lock_clocks_mhz": 1200}
    cell = past_cell(replace(row, trial=row.trial.model_copy(update=special)))
    assert (cell.commit, cell.environment, cell.lock_clocks_mhz) == ("c" * 40, "torch210", 1200)
