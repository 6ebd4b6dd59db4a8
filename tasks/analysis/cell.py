"""A cell: all repeats of one setting, and what is derived from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, geometric_mean
from typing import Any

from experiments.metric import Metric, Scale
from experiments.metrics import metric_of
from experiments.parameters import REFERENCES
from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean, t_value
from experiments.stats.layout import Layout
from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.stats.repeats import repeats_interval
from experiments.stats.spread import Spread
from experiments.stats.verdict import ONE_LOOK, Levels, Verdict
from experiments.trial import Scalar, Trial
from tasks.analysis.trial_row import TrialRow

DEVICES = "devices"  # the parameter and axis
_OF_A_COUNT = 1 / math.sqrt(12)  # standard deviation of what rounding to whole numbers takes off


@dataclass(eq=False)
class Cell:
    """All repeats of one cell, in order, and what is derived from them."""

    rows: list[TrialRow]
    metric: Metric
    number: int = 0  # in its layout
    layout: Layout | None = None  # of all trials of its pool in this sweep that have the metric, on the metric's scale; None: it has none
    known: Spread | None = None  # between trials of its workload on its pool and device, from past sweeps
    baseline: Cell | None = None  # itself where it is one
    is_compared_with: bool = False  # whether it is the baseline of another cell
    speedup: Estimate | None = None
    verdict: Verdict | None = None
    why_undecided: str | None = None  # a fragment, such as "one trial"
    levels: Levels = ONE_LOOK  # what its comparisons are held to; stricter where there are several looks: see looks.py
    decided_after: int | None = None  # the round at whose look its verdict fell; None: undecided, or there was but one look
    differs: list[str] = field(default_factory=list)  # confounders against the baseline cell
    parity: Parity | None = None  # None: it is the reference, or nothing is to prove
    reference: str = ""  # its precision, where it is what others of the sweep are compared with
    parity_note: str | None = None
    numerics: tuple[tuple[str, str], ...] = ()  # what it computes with
    work: Mapping[str, Any] = field(default_factory=dict)  # what changes its work -> value; cells of equal work are ranked
    other_work: str = ""  # why it is not compared with the cell that the suite names: what differs in their work
    named: frozenset[str] = frozenset()  # parameters that an axis such as a ladder's rung stands for
    varied: frozenset[str] = frozenset()  # the axes in which the sweep's cells differ

    @cached_property
    def trial(self) -> Trial:
        return self.rows[0].trial

    @property
    def emulated(self) -> bool:
        """Whether any repeat is emulated; cells are made of one kind only."""
        return any(row.emulated for row in self.rows)

    @cached_property
    def axes(self) -> Mapping[str, Scalar]:
        return self.trial.axes

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """Its parameters as text, by name."""
        return {name: str(value) for name, value in self.trial.parameters.items()}

    @property
    def on_own_scale(self) -> bool:
        """Whether its values are on its metric's own scale, on which past sweeps know how far trials, sweeps and hosts lie apart. They are
        not where one of 0 or less has no logarithm: see `compare_cells.on_a_scale_for`."""
        return self.metric.scale is metric_of(self.metric.name).scale

    @cached_property
    def trains(self) -> bool:
        """Whether a step trains: only what does not has service times or latencies. True where nothing was measured."""
        return all(row.trains for row in self.rows if row.outcome == "ok")

    @property
    def devices(self) -> int:
        """On how many accelerators it ran together."""
        return int(self.trial.parameters.get(DEVICES) or 1)

    @property
    def name(self) -> str:
        """For people, without the repeat: `cpu · tiny · bf16 · MP-1`."""
        return " · ".join(self.trial.axis_labels(self.axes).values())

    @cached_property
    def told(self) -> Mapping[str, str]:
        """Axis -> label of what tells it from the sweep's other cells and has an effect in it."""
        return self.trial.axis_labels(self.varied)

    @property
    def short(self) -> str:
        """For people, what tells it from the sweep's other cells: `bf16 · MP-1`; its whole name where nothing does."""
        return " · ".join(self.told.values()) or self.name

    def called(self, row: TrialRow) -> str:
        """For people, one of its trials among those of the sweep: `bf16 · MP-1 · #2`."""
        return f"{self.short} · #{row.trial.repeat}"

    @cached_property
    def measured(self) -> list[TrialRow]:
        """The repeats that ended ok and have the metric; without those that were disturbed, where others were not.

        What else ran changes no loss: of a metric that depends on the seed all count.
        """
        rows = [row for row in self.rows if row.outcome == "ok" and is_number(row.summary.get(self.metric.name))]
        return rows if self.metric.depends_on_seed else [row for row in rows if not row.disturbed] or rows

    @property
    def disturbed(self) -> str | None:
        """What disturbed every trial that it has: then nothing is claimed from it. None where one was not disturbed, or cannot be."""
        reasons = [None if self.metric.depends_on_seed else row.disturbed for row in self.measured]
        return reasons[0] if reasons and all(reasons) else None

    @cached_property
    def estimates(self) -> list[Estimate]:
        return [estimate_of(row, self.metric) for row in self.measured]

    @cached_property
    def estimate(self) -> Estimate | None:
        """Its value by its own repeats and what past sweeps know of its workload there. The sweep's other cells do not enter it."""
        return repeats_interval(self.estimates, known=self.known) if self.estimates else None

    @cached_property
    def level(self) -> float:
        """Its value to rank it by: in a sweep of several stretches without what those did to it, as far as other cells show that. It needs
        a value."""
        assert self.estimate is not None
        if self.layout is None or self.layout.one_stretch:
            return self.estimate.value
        level = self.layout.level(self.number)
        return math.exp(level) if self.metric.scale is Scale.LOG else level

    @property
    def values(self) -> list[float]:
        """The metric of each repeat that has it."""
        return [estimate.value for estimate in self.estimates]

    @property
    def ran_once(self) -> bool:
        """Whether but one of its trials has ended, however."""
        return sum(row.outcome != "to do" for row in self.rows) == 1

    @property
    def outcome(self) -> str:
        """`ok` if any repeat was; else how the first that ended did; else `to do`.

        Repeats are trials of their own, so none explains another and the first stands for the cell; the report lists the endings of all
        under Outcomes. Ranks of one trial share its fate, so there the ending that explains the others is chosen: see
        `explaining` in cluster/worker/outcome.py.
        """
        words = [row.outcome for row in self.rows]
        return "ok" if "ok" in words else next((word for word in words if word != "to do"), "to do")

    @property
    def reason(self) -> str | None:
        return next((row.reason for row in self.rows if row.outcome == self.outcome and row.reason), None)

    @property
    def claimed(self) -> bool:
        """Whether a speed-up over its baseline may be claimed: its loss parity is proven, or there is nothing to prove."""
        return self.may_lead(self.baseline)

    @property
    def struck(self) -> bool:
        """Whether its loss differs from that of its reference."""
        return self.parity is not None and self.parity.status is ParityStatus.STRUCK

    def may_lead(self, other: Cell | None) -> bool:
        """Whether a lead over `other` may be claimed. What is proven leads all, and what is struck nothing. Anything else leads what
        computes as it does. A reference leads the rest too, but no reference that is more exact: it was held against none.

        Without `other`: whether it has nothing to prove.
        """
        if self.parity is not None and self.parity.status is not ParityStatus.UNPROVEN:
            return self.parity.status is ParityStatus.PROVEN
        if other is None:
            return self.parity is None
        if other.numerics == self.numerics:
            return True
        if not self.reference or not other.reference:
            return bool(self.reference)
        return REFERENCES.index(self.reference) <= REFERENCES.index(other.reference)

    def mean(self, name: str) -> float | None:
        """Mean of a summary metric over the repeats that ended ok, without those that were disturbed, where others were not; None where
        none knows it."""
        rows = [row for row in self.rows if row.outcome == "ok"]
        known = numbers(row.summary.get(name) for row in [row for row in rows if not row.disturbed] or rows)
        return sum(known) / len(known) if known else None

    def middle(self, name: str) -> float | None:
        """The mean of a summary metric over the repeats that ended ok as the comparison has it of its own: geometric on a logarithmic
        scale, and of a metric that depends on the seed also of disturbed trials. None where no repeat knows it, or one has no logarithm."""
        metric = metric_of(name)
        rows = [row for row in self.rows if row.outcome == "ok"]
        counted = rows if metric.depends_on_seed else [row for row in rows if not row.disturbed] or rows
        return mean_on(metric.scale, numbers(row.summary.get(name) for row in counted))


def mean_on(scale: Scale, values: Sequence[float]) -> float | None:
    """Geometric on a logarithmic scale, else arithmetic; None of no value, and where one has no logarithm."""
    if not values or (scale is Scale.LOG and min(values) <= 0):
        return None
    return geometric_mean(values) if scale is Scale.LOG else fmean(values)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def numbers(values: Iterable[Any]) -> list[float]:
    """Those that are finite numbers."""
    return [float(value) for value in values if is_number(value)]


def estimate_of(row: TrialRow, metric: Metric) -> Estimate:
    """One trial's metric. Only a rate has an interval from within the trial; others need repeats to have one.

    Raises ValueError for a value of 0 or less of a metric on the logarithmic scale: see `compare_cells.on_a_scale_for`.
    A count may be off by what rounding to whole numbers takes: repeats that agree by chance are not exact.
    """
    value = float(row.summary[metric.name] or 0)
    if metric.scale is not Scale.LOG:
        unknown = estimate_from_mean(value, math.inf, 1, 1, LEVEL)
        return replace(unknown, se=_OF_A_COUNT) if metric.scale is Scale.COUNT else unknown
    if value <= 0:
        raise ValueError(f"{metric.name} is {value}, which has no logarithm")
    low, high = row.summary.get(f"{metric.name}_low"), row.summary.get(f"{metric.name}_high")
    if low is None or high is None or low <= 0:
        return Estimate(value, 0.0, math.inf, math.inf, 1)
    se = math.log(high / low) / (2 * t_value(LEVEL, math.inf))  # the bounds are already widened for few blocks
    return Estimate(value, float(low), float(high), se, math.inf)
