"""Cells of a sweep: repeats put together, compared with their baselines, with everything else that differs between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.spec.schema import Suite
from experiments.stats.estimate import Estimate
from experiments.stats.intervals import pooled_spread
from experiments.stats.ratio import ratio_interval
from experiments.stats.verdict import benjamini_hochberg, verdict
from tasks.analysis.cell import Cell, Metric
from tasks.analysis.confounders import confounders, value_key
from tasks.analysis.named_settings import named_by
from tasks.analysis.parity_gate import gate_on_parity
from tasks.analysis.results import TrialRow

MINIMUM_EFFECT = 0.02  # a smaller difference is "same": 2 %


def make_cells(rows: Iterable[TrialRow], suite: Suite, *, emulated: bool = False) -> list[Cell]:
    """Cells in the plan's order, compared with their baselines: of the trials that measured, or of the emulated ones, never of both."""
    metric = Metric.of(suite.report.metric)
    groups: dict[str, list[TrialRow]] = {}
    for row in rows:
        if row.emulated == emulated:
            groups.setdefault(row.trial.cell, []).append(row)
    cells = [Cell(sorted(group, key=lambda row: row.trial.repeat), metric) for group in groups.values()]
    for pool in {cell.trial.pool for cell in cells}:
        mine = [cell for cell in cells if cell.trial.pool == pool]
        spread = pooled_spread([[e.value for e in cell.estimates] for cell in mine])
        for cell in mine:
            cell.spread = spread if spread[1] else None
    for cell in cells:
        cell.named = named_by(suite, cell.axes)
    _compare(cells, suite)
    gate_on_parity(cells)
    return cells


def ratio_of(cell: Cell, baseline: Cell, *, spread: tuple[float, int] | None = None, paired: bool = True) -> Estimate:
    """How many times better `cell` is than `baseline`: > 1 is better, whichever direction the metric has. `paired`: one sweep's repeats."""
    pooled = spread or (cell.spread if cell.trial.pool == baseline.trial.pool else None)
    one, other = (cell, baseline) if cell.metric.higher_is_better else (baseline, cell)
    return ratio_interval(one.estimates, other.estimates, spread=pooled, paired=paired)


def _compare(cells: Sequence[Cell], suite: Suite) -> None:
    pairs = []
    for cell in cells:
        cell.baseline = find_baseline(cell, cells, suite)
        if cell.baseline is not None and cell.baseline is not cell and cell.estimates and cell.baseline.estimates:
            cell.speedup = ratio_of(cell, cell.baseline)
            cell.differs = [name for name, *_ in confounders([cell.baseline, cell])]
            pairs.append(cell)
    q_values = benjamini_hochberg([cell.speedup.p_value for cell in pairs if cell.speedup])
    for cell, q in zip(pairs, q_values, strict=True):
        assert cell.speedup is not None
        cell.verdict = verdict(cell.speedup, minimum=suite.report.minimum_effect, q_value=q)


def find_baseline(cell: Cell, cells: Sequence[Cell], suite: Suite) -> Cell | None:
    """The cell with this one's axes where the suite's `baseline` names none; the first of its table row where there is no baseline."""
    if not suite.baseline:
        rows, columns = layout(cells, suite)
        return next((other for other in cells if all(other.axes.get(a) == cell.axes.get(a) for a in rows)), None) if columns else None
    target = {**cell.axes, **{axis: value for axis, value in suite.baseline.items() if axis in cell.axes}}
    return next((other for other in cells if dict(other.axes) == target), None)


def layout(cells: Sequence[Cell], suite: Suite) -> tuple[list[str], list[str]]:
    """Axes of the table's rows and columns: the suite's, and every other axis with more than one value becomes a row."""
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.axes))
    columns = [axis for axis in [suite.report.columns] if axis is not None and axis in axes]
    rows = [axis for axis in suite.report.rows if axis in axes and axis not in columns]
    extra = [a for a in axes if a not in rows and a not in columns and len({value_key(cell.axes.get(a)) for cell in cells}) > 1]
    return rows + extra, columns
