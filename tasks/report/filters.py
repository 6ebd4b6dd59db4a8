"""The axes by which a reader can sort and filter the page's cells, and the tokens by which the page's script finds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.config.scalar_text import table_text
from tasks.analysis.cell import Cell
from tasks.report.value_order import ordered_values

FEWEST = 6  # cells, below which nothing needs to be filtered


@dataclass(frozen=True)
class AxisFilter:
    """An axis in which cells differ, and its values as text, numbers by size."""

    axis: str
    values: Sequence[str]

    @property
    def title(self) -> str:
        return self.axis.replace("_", " ")


class Filters:
    """The filters of a report's cells. A token `2.0` is the first value of the third filter."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._varied = [
            axis for axis in dict.fromkeys(axis for cell in cells for axis in cell.axes) if any(axis in c.varied for c in cells)
        ]
        found = [ordered_values([cell.axes.get(axis) for cell in cells]) for axis in self._varied]
        self._places = [{repr(value): place for place, value in enumerate(values)} for values in found]
        self.axes = [AxisFilter(axis, [table_text(value) for value in values]) for axis, values in zip(self._varied, found, strict=True)]
        self.worth_it = len(cells) >= FEWEST

    def tokens(self, cell: Cell, axes: Iterable[str] | None = None) -> str:
        """`0.1 2.0`: the cell's value of each filter, or of those of `axes` alone."""
        chosen = self._varied if axes is None else list(axes)
        return " ".join(f"{at}.{self._places[at][repr(cell.axes.get(axis))]}" for at, axis in enumerate(self._varied) if axis in chosen)


def constant_labels(cells: Sequence[Cell]) -> list[str]:
    """What all cells have: `h200`, `batch_size 32`; nothing of a single cell."""
    if not cells or not cells[0].varied:
        return []
    first = cells[0]
    return list(first.trial.axis_labels(first.axes.keys() - first.varied).values())
