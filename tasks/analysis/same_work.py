"""Which cells do the same work: only these are compared with a baseline, and ranked where they have as many accelerators too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.parameters import work_parameters
from experiments.spec.schema import Suite
from experiments.trial import label, value_text
from tasks.analysis.cell import DEVICES, Cell


def set_work(cells: Sequence[Cell], suite: Suite) -> None:
    """Set `work` of each cell: the workload, and the values of the parameters that change its work (`work_names`)."""
    own = {workload: _of_workload(workload) for workload in {cell.trial.workload for cell in cells}}
    for cell in cells:
        names = work_names(cell, [*suite.same_work, *own[cell.trial.workload]])
        cell.work = {"workload": cell.trial.workload, **{name: _value(cell, name) for name in names}}


def work_names(cell: Cell, named: Sequence[str]) -> list[str]:
    """The parameters that change a cell's work: those that are `named`, and the batch size for what is timed by batch."""
    by_batch = ["batch_size"] if cell.metric.depends_on_batch else []
    return [name for name in dict.fromkeys([*named, *by_batch]) if name in cell.trial.parameters]


def _of_workload(workload: str) -> Sequence[str]:
    """The parameters that a workload names. One that is no longer there names none beyond those that the plan has."""
    try:
        return work_parameters(workloads.load(workload).Parameters)
    except ConfigError:
        return ()


def other_work(cell: Cell, baseline: Cell) -> str:
    """What of the work differs, for people: `image_size 256, there default`; empty where both do the same."""
    names = dict.fromkeys([*baseline.work, *cell.work])
    differ = [name for name in names if cell.work.get(name) != baseline.work.get(name)]
    return "; ".join(
        f"{name} {value_text(name, cell.work.get(name))}, there {value_text(name, baseline.work.get(name))}" for name in differ
    )


def groups_of_work(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells that do the same work, by what tells them from the other groups: `large · batch_size 8`. One group has an empty name."""
    return _groups([(cell, cell.work) for cell in cells])


def groups_to_rank(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells that do the same work on as many accelerators, by what tells them from the other groups: `large · devices 4`.

    More accelerators make another rate, of all together and of each: that is scaling, and no setting's gain.
    """
    return _groups([(cell, {**cell.work, DEVICES: cell.devices}) for cell in cells])


def _groups(cells: Sequence[tuple[Cell, Mapping[str, Any]]]) -> dict[str, list[Cell]]:
    """Cells with equal values, by the values in which the groups differ: axes first, in the suite's order, as in cells' names."""
    groups: list[tuple[Mapping[str, Any], list[Cell]]] = []
    for cell, own in cells:
        mine = next((group for values, group in groups if values == own), None)
        if mine is None:
            groups.append((own, [cell]))
        else:
            mine.append(cell)
    axes = dict.fromkeys(axis for cell, _ in cells for axis in cell.axes)
    known = dict.fromkeys(name for values, _ in groups for name in values)
    names = [*(axis for axis in axes if axis in known), *(name for name in known if name not in axes)]
    varied = [name for name in names if any(values.get(name) != groups[0][0].get(name) for values, _ in groups)]
    return {" · ".join(label(name, values.get(name)) for name in varied): group for values, group in groups}


def _value(cell: Cell, name: str) -> Any:
    """The cell's parameter; of a batch size of `max` the one that was found."""
    value = cell.trial.parameters.get(name)
    found = cell.mean(name) if name == "batch_size" and value == "max" else None
    return value if found is None else found
