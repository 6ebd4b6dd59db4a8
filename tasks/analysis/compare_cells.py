"""Cells of a sweep: repeats put together, compared with their baselines, with everything else that differs between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from experiments.metric import Direction, Metric, Scale
from experiments.metrics import metric_of
from experiments.price import COST
from experiments.spec.schema import Suite
from experiments.stats.layout import Layout
from experiments.stats.spread import Spread, SpreadLookup
from experiments.trial import Scalar
from tasks.analysis.cell import Cell, numbers
from tasks.analysis.confounders import confounders, value_key
from tasks.analysis.judge_cells import MINIMUM_EFFECT, Comparison, judge_pairs
from tasks.analysis.named_settings import named_by
from tasks.analysis.parity_gate import gate_on_parity
from tasks.analysis.same_work import other_work, set_work
from tasks.analysis.stretches import numbers_of
from tasks.analysis.trial_row import TrialRow


def make_cells(rows: Iterable[TrialRow], suite: Suite, *, emulated: bool = False, known: SpreadLookup | None = None) -> list[Cell]:
    """Cells in the plan's order, compared with their baselines: of the trials that measured, or of the emulated ones, never of both.

    `known`: the spread between trials of a workload on a pool and device, from past sweeps; a cell's own interval rests on it besides its
    repeats.
    Without the references that serve loss parity alone: they are compared with nothing.
    """
    cells = laid_out_cells(rows, suite, emulated=emulated, known=known)
    pairs = compared_pairs(cells)
    for (cell, _), found in zip(pairs, judge_pairs(pairs, suite.report.minimum_effect), strict=True):
        take(cell, found)
    gate_on_parity(cells)
    return shown(cells)


def laid_out_cells(rows: Iterable[TrialRow], suite: Suite, *, emulated: bool = False, known: SpreadLookup | None = None) -> list[Cell]:
    """As `make_cells`, but not judged, with the references of loss parity: each cell has its layout and its baseline."""
    groups: dict[str, list[TrialRow]] = {}
    for row in rows:
        if row.emulated == emulated:
            groups.setdefault(row.trial.cell, []).append(row)
    name, ok = suite.report.metric, [row for group in groups.values() for row in group if row.outcome == "ok"]
    metric = on_a_scale_for(in_currency(metric_of(name), ok), numbers(row.summary.get(name) for row in ok), suite.report.minimum_effect)
    cells = [Cell(sorted(group, key=lambda row: row.trial.repeat), metric) for group in groups.values()]
    for number, cell in enumerate(cells):
        cell.number, cell.known = number, _known(cell, known)
    for pool in {cell.trial.pool for cell in cells}:
        _lay_out([cell for cell in cells if cell.trial.pool == pool])
    for cell in cells:
        cell.named = named_by(suite, cell.axes)
    varied = varied_axes(shown(cells))
    for cell in cells:
        cell.varied = varied
    set_work(cells, suite)
    _find_baselines(cells, suite)
    return cells


def shown(cells: Sequence[Cell]) -> list[Cell]:
    """Without the references that serve loss parity alone."""
    return [cell for cell in cells if not cell.trial.reference]


def varied_axes(cells: Sequence[Cell]) -> frozenset[str]:
    """The axes in which these cells differ; one that only some of them have is such an axis."""
    axes = {axis for cell in cells for axis in cell.axes}
    return frozenset(axis for axis in axes if len({value_key(cell.axes[axis]) if axis in cell.axes else None for cell in cells}) > 1)


def _known(cell: Cell, known: SpreadLookup | None) -> Spread | None:
    """What past sweeps know of the spread between trials of the cell's workload on its pool and device; None on another scale than the
    metric's own."""
    if known is None or not cell.on_own_scale:
        return None
    device = next((str(row.environment["device_name"]) for row in cell.rows if row.environment.get("device_name")), None)
    return known(cell.trial.pool, device, cell.trial.workload, cell.metric.name)


def _lay_out(cells: Sequence[Cell]) -> None:
    """Give the cells of a pool their layout: all trials with the metric, their rounds (repeats), stretches and order."""
    trials = [(cell, row, estimate) for cell in cells for row, estimate in zip(cell.measured, cell.estimates, strict=True)]
    if not trials:
        return
    started = [(row.result.started_at if row.result else 0.0, row.trial.index) for _, row, _ in trials]
    places = {when: place for place, when in enumerate(sorted(set(started)))}
    timeless = trials[0][0].metric.depends_on_seed  # a loss does not drift with the machine
    layout = Layout(
        [estimate.effect for _, _, estimate in trials],
        [cell.number for cell, _, _ in trials],
        [row.trial.repeat for _, row, _ in trials],
        [0 if timeless else places[when] for when in started],
        errors=[estimate.se for _, _, estimate in trials],
        known={cell.number: cell.known for cell in cells if cell.known},
        stretches=numbers_of([row for _, row, _ in trials]),
    )
    for cell in cells:
        cell.layout = layout if cell.estimates else None


def on_a_scale_for(metric: Metric, values: Sequence[float], minimum: float | None = None) -> Metric:
    """The metric as these values can be compared: on the linear scale where one of them is 0 or less, so that it has no ratio.

    Then the smallest effect, relative until now, is taken of the largest of the values. `minimum`: the suite's smallest effect.
    """
    if metric.scale is not Scale.LOG:
        return metric if minimum is None else replace(metric, minimum_effect=minimum)
    if all(value > 0 for value in values):
        return metric
    effect = (minimum or MINIMUM_EFFECT) * max(map(abs, values))
    return replace(metric, scale=Scale.LINEAR, minimum_effect=effect or MINIMUM_EFFECT)


def in_currency(metric: Metric, rows: Iterable[TrialRow]) -> Metric:
    """A cost in the currency of these trials' prices; any other metric as it is."""
    currency = next((row.trial.price.currency for row in rows if row.trial.price is not None), "")
    return replace(metric, unit=currency) if metric.name.startswith(COST) else metric


def _find_baselines(cells: Sequence[Cell], suite: Suite) -> None:
    compared = shown(cells)
    for cell, named in zip(compared, baselines(compared, suite), strict=True):
        cell.other_work = other_work(cell, named) if named is not None else ""
        cell.baseline = None if cell.other_work else named
        if cell.baseline is None or cell.baseline is cell:
            continue
        cell.baseline.is_compared_with = True
        if cell.estimates and cell.baseline.estimates:
            cell.differs = [name for name, *_ in confounders([cell.baseline, cell], between=True)]


def compared_pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """(cell, its baseline) where both have a value."""
    found = [(cell, cell.baseline) for cell in cells if cell.baseline is not None and cell.baseline is not cell]
    return [(cell, baseline) for cell, baseline in found if cell.estimates and baseline.estimates]


def take(cell: Cell, found: Comparison) -> None:
    """Give a cell what its comparison with the baseline found; no verdict where the metric is better neither high nor low."""
    cell.speedup = found.ratio
    if cell.metric.direction is not Direction.NEITHER:
        cell.verdict, cell.why_undecided = found.verdict, found.why_undecided


def baselines(cells: Sequence[Cell], suite: Suite) -> list[Cell | None]:
    """Of each cell: the one with its axes where the suite's `baseline` names none; the first of its row where there is no baseline.

    What is linked to an axis that `baseline` names has the value that goes with it: bf16 comes with stock kernels, whatever a cell has.
    """
    if suite.baseline:
        return _first(cells, lambda axes: frozenset(axes.items()), {**_linked_to(suite.baseline, suite.linked), **suite.baseline})
    rows, columns = layout(cells, suite)
    return _first(cells, lambda axes: tuple(axes.get(axis) for axis in rows)) if columns else [None] * len(cells)


def _linked_to(named: Mapping[str, Scalar], linked: Sequence[Mapping[str, Sequence[Scalar]]]) -> dict[str, Scalar]:
    """The values that linked axes have wherever the named ones have theirs; without those that may have several."""
    found: dict[str, Scalar] = {}
    for group in linked:
        known = {axis: named[axis] for axis in group if axis in named}
        entries = [dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True)]
        fitting = [entry for entry in entries if all(value_key(entry[axis]) == value_key(value) for axis, value in known.items())]
        if known and fitting:
            found |= {axis: value for axis, value in fitting[0].items() if all(value_key(one[axis]) == value_key(value) for one in fitting)}
    return found


def _first(
    cells: Sequence[Cell], place: Callable[[Mapping[str, Scalar]], Hashable], named: Mapping[str, Scalar] = MappingProxyType({})
) -> list[Cell | None]:
    """Of each cell the first one at its place, which `place` gives by the axes, with the values of those that are `named`."""
    first: dict[Hashable, Cell] = {}
    for cell in cells:
        first.setdefault(place(cell.axes), cell)
    return [first.get(place({axis: named.get(axis, value) for axis, value in cell.axes.items()})) for cell in cells]


def layout(cells: Sequence[Cell], suite: Suite) -> tuple[list[str], list[str]]:
    """Axes of the table's rows and columns: the suite's, and every other axis with more than one value becomes a row."""
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.axes))
    columns = [axis for axis in [suite.report.columns] if axis is not None and axis in axes]
    rows = [axis for axis in suite.report.rows if axis in axes and axis not in columns]
    extra = [a for a in axes if a not in rows and a not in columns and len({value_key(cell.axes.get(a)) for cell in cells}) > 1]
    return rows + extra, columns
