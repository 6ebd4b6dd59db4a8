"""Verdicts on cells: each against a baseline, or the best of a sweep against all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.metrics import Metric, Scale
from experiments.stats.estimate import Estimate
from experiments.stats.linear import difference_interval
from experiments.stats.ratio import ratio_interval
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict
from tasks.analysis.cell import Cell

MINIMUM_EFFECT = 0.02  # a smaller difference is "same": 2 %
ONE_TRIAL, SPREADS_DIFFER, TOO_WIDE, OF_MANY = (
    "one trial",
    "two trials whose spreads differ",
    "too wide an interval",
    "one of many comparisons",
)


@dataclass(frozen=True)
class Comparison:
    """A cell against another. `ratio`: as `ratio_of`. `why_undecided`: a fragment such as "one trial"; None where it is decided."""

    ratio: Estimate
    verdict: Verdict
    why_undecided: str | None = None


def ratio_of(cell: Cell, baseline: Cell, *, spread: tuple[float, int] | None = None, paired: bool = True) -> Estimate:
    """How many times better `cell` is than `baseline`: > 1 is better, whichever direction the metric has. `paired`: one sweep's repeats.

    Of a score or a count, by how much it is better: a difference, > 0 is better. `spread` is on the metric's scale. A metric that is better
    neither high nor low is compared as one of which more is better.
    """
    alike = cell.trial.pool == baseline.trial.pool and cell.metric.scale is baseline.metric.scale
    pooled = spread or (cell.spread if alike else None)
    one, other = (baseline, cell) if cell.metric.lower_is_better else (cell, baseline)
    if {cell.metric.scale, baseline.metric.scale} != {Scale.LOG}:
        return difference_interval(one.values, other.values, spread=pooled, paired=paired)
    return ratio_interval(one.estimates, other.estimates, spread=pooled, paired=paired)


def smallest_effect(metric: Metric, minimum: float | None = None) -> float:
    """The smallest effect that decides between cells: on the logarithmic scale `minimum`, relative; else the metric's, in its unit."""
    return minimum or MINIMUM_EFFECT if metric.scale is Scale.LOG else metric.minimum_effect


def judge_pairs(pairs: Sequence[tuple[Cell, Cell]], minimum: float | None = None) -> list[Comparison]:
    """Each (cell, baseline) of a table. The false discovery rate over all of them is controlled (Benjamini & Hochberg 1995)."""
    ratios = [ratio_of(cell, baseline) for cell, baseline in pairs]
    too_few = [ONE_TRIAL if min(len(cell.measured), len(other.measured)) < 2 else None for cell, other in pairs]
    tested = iter(benjamini_hochberg([ratio.p_value for ratio, why in zip(ratios, too_few, strict=True) if why is None]))
    judged = []
    for (cell, _), ratio, why in zip(pairs, ratios, too_few, strict=True):
        if why:
            judged.append(Comparison(ratio, Verdict.UNDECIDED, why))
            continue
        least = smallest_effect(cell.metric, minimum)
        word = verdict(ratio, minimum=least, q_value=next(tested))
        open_ = TOO_WIDE if verdict(ratio, minimum=least) is word else OF_MANY
        judged.append(Comparison(ratio, word, open_ if word is Verdict.UNDECIDED else None))
    return judged


def judge_best(best: Cell, others: Sequence[Cell], minimum: float | None = None) -> list[Comparison]:
    """The cell with the best value against each of the `others` that it was picked from."""
    return judge_pairs([(best, other) for other in others], minimum)
