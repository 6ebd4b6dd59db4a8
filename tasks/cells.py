"""Cells of a sweep: repeats put together, compared with their baselines, with everything else that differs between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from experiments.parameters import NAMES_OF_SETTINGS, REFERENCE, SAME_MATHEMATICS
from experiments.parity import Parity, loss_parity
from experiments.statistics import (
    Estimate,
    Verdict,
    benjamini_hochberg,
    pooled_spread,
    ratio_interval,
    repeats_interval,
    verdict,
)
from experiments.trial import Scalar, Trial, label
from tasks.named_settings import named_by
from tasks.results import TrialRow

MINIMUM_EFFECT = 0.02  # a smaller difference is "same": 2 %
_Z95 = 1.959964

_OF_THE_POOL = frozenset({"device_kind", "device_name", "device_count", "pool"})


@dataclass(frozen=True)
class Metric:
    """A summary metric as a person reads it."""

    name: str
    unit: str
    higher_is_better: bool = True

    @classmethod
    def of(cls, name: str) -> Metric:
        """Unit and direction from the metric's name."""
        if name == "throughput" or name.startswith("throughput_"):
            return cls(name, "samples/s")
        if name == "tflops_per_device":
            return cls(name, "TFLOP/s")
        if name == "batch_size":
            return cls(name, "samples")
        for ending, unit in (("_s", "s"), ("_bytes", "B"), ("_j_per_sample", "J"), ("_w", "W")):
            if name.endswith(ending):
                return cls(name, unit, higher_is_better=False)
        lower = "loss" in name or "latency" in name or name.endswith("_share")
        return cls(name, "", higher_is_better=not lower)


@dataclass(eq=False)
class Cell:
    """All repeats of one cell, in order, and what is derived from them."""

    rows: list[TrialRow]
    metric: Metric
    spread: tuple[float, int] | None = None
    baseline: Cell | None = None
    speedup: Estimate | None = None
    verdict: Verdict | None = None
    differs: list[str] = field(default_factory=list)  # confounders against the baseline cell
    parity: Parity | None = None
    parity_note: str | None = None
    named: frozenset[str] = frozenset()  # parameters that an axis such as a ladder's rung stands for

    @property
    def trial(self) -> Trial:
        return self.rows[0].trial

    @property
    def emulated(self) -> bool:
        """Whether any repeat is emulated; cells are made of one kind only."""
        return any(row.emulated for row in self.rows)

    @property
    def axes(self) -> Mapping[str, Scalar]:
        return self.trial.axes

    @property
    def name(self) -> str:
        """For people, without the repeat: `cpu · tiny · bf16 · MP-1`."""
        return " · ".join(label(axis, value) for axis, value in self.axes.items())

    @cached_property
    def measured(self) -> list[TrialRow]:
        """The repeats that ended ok and have the metric."""
        return [row for row in self.rows if row.outcome == "ok" and is_number(row.summary.get(self.metric.name))]

    @cached_property
    def estimates(self) -> list[Estimate]:
        return [estimate_of(row, self.metric) for row in self.measured]

    @cached_property
    def estimate(self) -> Estimate | None:
        return repeats_interval(self.estimates, spread=self.spread) if self.estimates else None

    @property
    def outcome(self) -> str:
        """`ok` if any repeat was; else how the first that ended did; else `to do`."""
        words = [row.outcome for row in self.rows]
        return "ok" if "ok" in words else next((word for word in words if word != "to do"), "to do")

    @property
    def reason(self) -> str | None:
        return next((row.reason for row in self.rows if row.outcome == self.outcome and row.reason), None)

    @property
    def claimed(self) -> bool:
        """False if the loss curve left its band: then no speed-up is claimed."""
        return self.parity is None or self.parity.inside

    def mean(self, name: str) -> float | None:
        """Mean of a summary metric over the repeats that ended ok; None where none knows it."""
        known = numbers(row.summary.get(name) for row in self.rows if row.outcome == "ok")
        return sum(known) / len(known) if known else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def numbers(values: Iterable[Any]) -> list[float]:
    """Those that are finite numbers."""
    return [float(value) for value in values if is_number(value)]


def estimate_of(row: TrialRow, metric: Metric) -> Estimate:
    """One trial's metric. Only throughput has an interval from within the trial; others need repeats to have one."""
    value = float(row.summary[metric.name] or 0)
    low, high = row.summary.get(f"{metric.name}_low"), row.summary.get(f"{metric.name}_high")
    if value <= 0 or low is None or high is None or low <= 0:
        return Estimate(max(value, 1e-12), 0.0, math.inf, math.inf, 1)
    se = math.log(high / low) / (2 * _Z95)  # the bounds are already widened for few blocks
    return Estimate(value, float(low), float(high), se, math.inf)


def make_cells(rows: Iterable[TrialRow], suite: Mapping[str, Any], *, emulated: bool = False) -> list[Cell]:
    """Cells in the plan's order, compared with their baselines: of the trials that measured, or of the emulated ones, never of both."""
    report = suite.get("report") or {}
    metric = Metric.of(str(report.get("metric") or "throughput"))
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
    _gate(cells)
    return cells


def ratio_of(cell: Cell, baseline: Cell, *, spread: tuple[float, int] | None = None, paired: bool = True) -> Estimate:
    """How many times better `cell` is than `baseline`: > 1 is better, whichever direction the metric has. `paired`: one sweep's repeats."""
    pooled = spread or (cell.spread if cell.trial.pool == baseline.trial.pool else None)
    one, other = (cell, baseline) if cell.metric.higher_is_better else (baseline, cell)
    return ratio_interval(one.estimates, other.estimates, spread=pooled, paired=paired)


def _compare(cells: Sequence[Cell], suite: Mapping[str, Any]) -> None:
    minimum = float((suite.get("report") or {}).get("minimum_effect") or MINIMUM_EFFECT)
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
        cell.verdict = verdict(cell.speedup, minimum=minimum, q_value=q)


def find_baseline(cell: Cell, cells: Sequence[Cell], suite: Mapping[str, Any]) -> Cell | None:
    """The cell with this one's axes where the suite's `baseline` names none; the first of its table row where there is no baseline."""
    wanted = suite.get("baseline")
    if not isinstance(wanted, Mapping) or not wanted:
        rows, columns = layout(cells, suite)
        return next((other for other in cells if all(other.axes.get(a) == cell.axes.get(a) for a in rows)), None) if columns else None
    target = {**cell.axes, **{axis: value for axis, value in wanted.items() if axis in cell.axes}}
    return next((other for other in cells if dict(other.axes) == target), None)


def layout(cells: Sequence[Cell], suite: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Axes of the table's rows and columns: the suite's, and every other axis with more than one value becomes a row."""
    report = suite.get("report") or {}
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell.axes))
    columns = [axis for axis in _names(report.get("columns") or ["dataloader_workers"]) if axis in axes]
    rows = [axis for axis in _names(report.get("rows") or ["pool", "model"]) if axis in axes and axis not in columns]
    extra = [a for a in axes if a not in rows and a not in columns and len({_key(cell.axes.get(a)) for cell in cells}) > 1]
    return rows + extra, columns


def _names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(name) for name in value]


def _key(value: Any) -> str:
    return repr(value)


def confounders(cells: Sequence[Cell]) -> list[tuple[str, list[tuple[str, list[Cell]]]]]:
    """What differs between cells that were compared and is not an axis: (name, [(value, cells), ...]).

    Environment values, and parameters that the suite set differently without an axis. Numbers within 1 % count as equal (clocks).
    """
    found = []
    axes = {axis for cell in cells for axis in cell.axes if len({_key(c.axes.get(axis)) for c in cells}) > 1}
    hidden = (_OF_THE_POOL if "pool" in axes else frozenset()) | ({"world_size", "device_count"} if "devices" in axes else frozenset())
    for name in dict.fromkeys(key for cell in cells for row in cell.measured for key in row.environment):
        if name in hidden:
            continue
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            values = [row.environment.get(name) for row in cell.measured]
            for value in values:
                group = groups.setdefault("unknown" if value is None else str(value), [])
                if cell not in group:
                    group.append(cell)
        known = numbers(row.environment.get(name) for cell in cells for row in cell.measured)
        close = len(known) == sum(len(cell.measured) for cell in cells) and max(known) <= min(known) * 1.01
        if len(groups) > 1 and not close:
            found.append((name, list(groups.items())))
    meant = {name for cell in cells for name in cell.named} if axes & NAMES_OF_SETTINGS else set()
    for name in dict.fromkeys(key for cell in cells for key in cell.trial.parameters if key not in meant):
        settings: dict[str, list[Cell]] = {}
        for cell in cells:
            settings.setdefault(str(cell.trial.parameters.get(name)), []).append(cell)
        if len(settings) > 1 and name not in axes:
            found.append((name, list(settings.items())))
    return found


def _gate(cells: Sequence[Cell]) -> None:
    """Set `parity` where there is an fp32 cell of the same seed and mathematics, `parity_note` where there should be one and is not."""
    for cell in cells:
        precision = cell.trial.parameters.get("precision")
        if precision in (None, REFERENCE) or not cell.measured:
            continue
        reference, why_not = _reference(cell, cells)
        if reference is None:
            cell.parity_note = f"{why_not}: the loss was not gated"
            continue
        curves = [row.losses for row in reference.measured]
        try:
            judged = [loss_parity(curves[0], row.losses, others=curves[1:]) for row in cell.measured]
        except ValueError as error:
            cell.parity_note = f"the loss was not gated: {error}"
            continue
        cell.parity = max(judged, key=lambda parity: parity.worst)
        if not cell.parity.inside:
            where, by = cell.parity.left_at, cell.parity.worst
            how = f"by {by:.1f} times its half-width" if math.isfinite(by) else "it is not finite there"
            cell.parity_note = f"the loss left the band of fp32 at step {where} ({how}): no speed-up is claimed"


def _reference(cell: Cell, cells: Sequence[Cell]) -> tuple[Cell | None, str]:
    """The fp32 cell that learns the same, with as few other settings changed as there are; the same pool first. Else None, and why."""
    mine = _settings(cell)

    def changed(other: Cell) -> set[str]:
        theirs = _settings(other)
        return {name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)}

    others = [(other, changed(other)) for other in cells if other.trial.parameters.get("precision") == REFERENCE]
    able = [(other, names) for other, names in others if names <= SAME_MATHEMATICS]
    measured = [pair for pair in able if pair[0].measured]
    if measured:
        return min(measured, key=lambda pair: (pair[0].trial.pool != cell.trial.pool, len(pair[1])))[0], ""
    if able:
        return None, f"its fp32 reference ended without a curve ({able[0][0].outcome})"
    if not others:
        return None, "no fp32 reference in the sweep"
    nearest = min((names - SAME_MATHEMATICS for _, names in others), key=len)
    return None, f"no fp32 reference: the nearest fp32 cell has another {' and '.join(sorted(nearest))}"


def _settings(cell: Cell) -> dict[str, Any]:
    """The cell's parameters, with the batch that `max` came to."""
    found = next((row.result.summary.get("batch_size") for row in cell.measured if row.result), None)
    settings = dict(cell.trial.parameters)
    return {**settings, "batch_size": found} if found is not None and settings.get("batch_size") == "max" else settings
