"""Section: the parameters that are the same in every trial, defaults included; and those that a page says first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.components.inference import OF_TRAINING
from experiments.config.scalar_text import table_text
from tasks.analysis.cell import Cell
from tasks.analysis.confounders import value_key
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section
from tasks.report.text_format import listed
from tasks.report.value_order import ordered_values

NAME = "parameters"
TEXT = "The same in every trial, defaults included; what differs is in the comparison, or among the confounders."
FIRST = ("precision", "autocast", "batch_size", "learning_rate", "compile")  # what a reader asks of any rate


def section(source: ReportSource) -> Section | None:
    table = parameters_table(source.cells)
    return Section(NAME, "Parameters", [table], TEXT, folded=True) if table.rows else None


def parameters_table(cells: Sequence[Cell]) -> TextTable:
    """The parameters that all trials of these cells share; without those of training where nothing is trained."""
    found = [(name, values[0]) for name, values in _values(cells) if len(values) == 1]
    return TextTable(["parameter", "value"], [[name, _text(value)] for name, value in found])


def settings_text(cells: Sequence[Cell]) -> str:
    """`precision bf16 and fp8, batch_size 64, learning_rate 5e-05, compile none`: of FIRST what the cells have, with all values of each.

    autocast, without which a precision is that of weights and all else, is told where a cell is without.
    """
    told = dict(_values(cells))
    values = {name: ordered_values(told[name]) for name in FIRST if name in told}
    if all(values.get("autocast", ())):
        values.pop("autocast", None)
    return ", ".join(f"{name} {listed([_text(value) for value in of], len(of))}" for name, of in values.items())


def _values(cells: Sequence[Cell]) -> list[tuple[str, list[Any]]]:
    """(name, its values) of each parameter that all trials have, in the plan's order."""
    trials = [row.trial for cell in cells for row in cell.rows]
    unused = frozenset() if any(cell.trains for cell in cells) else OF_TRAINING
    names = [name for name in (trials[0].parameters if trials else ()) if name not in unused]
    return [
        (name, _each_once(trial.parameters[name] for trial in trials))
        for name in names
        if all(name in trial.parameters for trial in trials)
    ]


def _each_once(values: Iterable[Any]) -> list[Any]:
    return list({value_key(value): value for value in values}.values())


def _text(value: object) -> str:
    return table_text(value, missing="not set")
