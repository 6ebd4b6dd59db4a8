"""How large a model each strategy holds: the largest size that fitted, and the next one that did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.trial import Scalar, Trial
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tasks.report.text_format import OUTCOMES, percent
from tasks.report.value_order import parameters_named

PEAK_MEMORY = "peak_memory_bytes"  # the metric of suites that ask what fits
_MODEL = "model"
_NOT = "does_not_fit"


def fit_sentence(cells: Sequence[Cell]) -> str:
    """`Largest that fits: ddp 6b, and 6.5b, 8.3 % larger, does not; fsdp2 16b, the largest tried.`

    Sizes are the numbers of parameters that the models are named for. Empty where no axis names sizes, or every size fitted: then nothing
    shows where the limit is.
    """
    axis = _size_axis(cells)
    if axis is None or not any(cell.outcome == _NOT for cell in cells):
        return ""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        others = [text for name, text in cell.told.items() if name != axis]
        groups.setdefault(" · ".join(others), []).append(cell)
    said = [found for name, group in groups.items() if (found := _bracket(name, group, axis))]
    return f"Largest that fits: {'; '.join(said)}." if said else ""


def implied(waiting: Sequence[Trial], rows: Sequence[TrialRow]) -> list[Trial]:
    """Those of `waiting` whose cells have no trial in `rows`, and of which other sizes of the same strategy tell whether they fit: a larger
    one did, or a smaller one did not.

    Sizes are those that the axis `model` names, and a strategy is all other axes.
    """
    ran = {row.trial.cell for row in rows}
    return [trial for trial in waiting if trial.cell not in ran and any(_tells(row, trial) for row in rows)]


def _tells(row: TrialRow, trial: Trial) -> bool:
    size, other = (parameters_named(one.axes.get(_MODEL)) for one in (trial, row.trial))
    if size is None or other is None or _strategy(row.trial) != _strategy(trial):
        return False
    return (row.outcome == "ok" and other >= size) or (row.outcome == _NOT and other <= size)


def _strategy(trial: Trial) -> Mapping[str, Scalar]:
    return {name: value for name, value in trial.axes.items() if name != _MODEL}


@dataclass(frozen=True)
class Fit:
    """The largest model that fitted, and its number of parameters. `above`: that of the smallest larger one that did not; None: none was
    tried."""

    cell: Cell
    size: float
    above: float | None


def fits_of(cells: Sequence[Cell]) -> Fit | None:
    """Of cells of one strategy, by the parameter `model`. None where none fitted, or a model is not named for its size."""
    sizes = {id(cell): parameters_named(cell.trial.parameters.get(_MODEL)) for cell in cells}
    known = [(size, cell) for cell in cells if (size := sizes[id(cell)]) is not None]
    size, fitted = max((one for one in known if one[1].outcome == "ok"), key=lambda one: one[0], default=(0.0, None))
    if fitted is None or len(known) < len(cells):
        return None
    return Fit(fitted, size, min((other for other, cell in known if cell.outcome == _NOT and other > size), default=None))


def _size_axis(cells: Sequence[Cell]) -> str | None:
    """The axis in which the cells differ and whose every value is a number of parameters."""
    varied = [axis for axis in (cells[0].axes if cells else ()) if axis in cells[0].varied]
    return next((axis for axis in varied if all(parameters_named(cell.axes.get(axis)) is not None for cell in cells)), None)


def _bracket(name: str, cells: Sequence[Cell], axis: str) -> str:
    """Of one strategy. Empty where it has no size that either fitted or did not."""

    def size(cell: Cell) -> float:
        return parameters_named(cell.axes.get(axis)) or 0.0

    fitted = max((cell for cell in cells if cell.outcome == "ok"), key=size, default=None)
    above = [cell for cell in cells if cell.outcome == _NOT and (fitted is None or size(cell) > size(fitted))]
    too_large = min(above, key=size, default=None)
    prefix = f"{name} " if name else ""
    if fitted is None:
        return f"{prefix}unknown: {too_large.axes[axis]}, the smallest tried, does not fit" if too_large else ""
    end = size(too_large) if too_large else float("inf")
    others = [cell for cell in cells if cell.outcome not in ("ok", _NOT) and size(fitted) < size(cell) < end]
    open_ = "".join(f"; {cell.axes[axis]} {OUTCOMES.get(cell.outcome, cell.outcome)}" for cell in sorted(others, key=size))
    if too_large is None:
        return f"{prefix}{fitted.axes[axis]}, the largest {'that ended ok' if others else 'tried'}{open_}"
    return f"{prefix}{fitted.axes[axis]}, and {too_large.axes[axis]}, {percent(size(too_large) / size(fitted) - 1)} larger, does not{open_}"
