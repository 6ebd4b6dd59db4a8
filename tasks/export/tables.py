"""What is exported of a sweep: its trials, its cells and their steps as Arrow tables. Each row says whether it is of an emulated device,
and what of its arithmetic was simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from experiments.trial import Scalar
from tasks.analysis.cell import Cell
from tasks.analysis.cell_records import cell_records, simulated
from tasks.analysis.looks import judged_cells
from tasks.analysis.results import Sweep, table_of, trial_records
from tasks.analysis.step_tables import all_steps
from tasks.report.hidden_names import hidden

_HOST = "env.host"  # left out; `env.host_id` stays
_TOLD = ("reason", "disturbed")  # sentences, which may name a host


@dataclass(frozen=True)
class Tables:
    """`trials`: a row for each trial, as results.parquet has them, without names of hosts. `cells`: those of the trials that measured, then
    those of the emulated ones, which are compared among themselves. `steps`: every step, by `trial_key`."""

    trials: Any
    cells: Any
    steps: Any

    def named(self) -> dict[str, Any]:
        """Name of each table -> the table, the shortest first."""
        return {"cells": self.cells, "trials": self.trials, "steps": self.steps}


def tables_of(sweep: Sweep) -> Tables:
    """Raises DamagedFile for steps that cannot be read; a trial that cannot be read is a row with its problem and has no steps."""
    return Tables(table_of(trial_rows(sweep)), cells_table(sweep), _steps(sweep))


def trial_rows(sweep: Sweep) -> list[dict[str, Scalar]]:
    """The rows of results.parquet, each with `simulated` beside `emulated`, and with the id of its host in place of the name."""
    rows = []
    for record, row in zip(trial_records(sweep), sweep.rows, strict=True):
        host = str(record.pop(_HOST, None) or "")
        fields: dict[str, Scalar] = {}
        for name, value in record.items():
            fields[name] = hidden(value, {host: _host_id(record)}) if host and name in _TOLD and isinstance(value, str) else value
            if name == "emulated":
                fields["simulated"] = simulated(row.trial)
        rows.append(fields)
    return rows


def _host_id(record: Mapping[str, Scalar]) -> str:
    return f"host {record.get('env.host_id') or 'of the trial'}"


def all_cells(sweep: Sweep) -> list[Cell]:
    """Cells of the trials that measured, then of the emulated ones."""
    return [cell for emulated in (False, True) for cell in judged_cells(sweep, emulated=emulated)]


def cells_table(sweep: Sweep) -> Any:
    """A row for each cell: see `cell_records`."""
    return table_of(cell_records(sweep.sweep_id, all_cells(sweep)))


def _steps(sweep: Sweep) -> Any:
    """The steps with what their trial is."""
    steps = all_steps(sweep)
    rows = {row.trial.key: row for row in sweep.rows}
    keys = steps["trial_key"].to_pylist()
    told = {
        "sweep_id": pa.array([sweep.sweep_id] * len(keys), pa.string()),
        "emulated": pa.array([rows[key].emulated for key in keys], pa.bool_()),
        "simulated": pa.array([simulated(rows[key].trial) for key in keys], pa.string()),
    }
    for place, (name, values) in enumerate(told.items()):
        steps = steps.add_column(place if name == "sweep_id" else place + 1, name, values)
    return steps
