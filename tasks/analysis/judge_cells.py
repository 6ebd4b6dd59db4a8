"""Verdicts on cells: each against a baseline, or the best of a sweep against all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.metric import Metric, Scale
from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean, exponential
from experiments.stats.repeats import ratio_interval
from experiments.stats.spread import spread_of, spreads_differ
from experiments.stats.verdict import Levels, Verdict, among_many, benjamini_hochberg, verdict
from tasks.analysis.cell import Cell

_INVERSE = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
MINIMUM_EFFECT = 0.02  # a smaller difference is "same": 2 %
DISTURBED, APART, ONE_TRIAL, ONE_BESIDE, ONE_IN_COMMON, SPREADS_DIFFER, TOO_WIDE, OF_MANY, LEFT_OPEN = (
    "disturbed by other work",
    "not measured on one host in one sitting",
    "one trial",
    "one trial on the same host and in the same sitting as the other's",
    "one trial in a round that has a trial to compare it with",
    "compared over two trials, whose spreads differ",
    "too wide an interval",
    "one of many comparisons",
    "the table has it among several comparisons, and leaves it open",
)


@dataclass(frozen=True)
class Comparison:
    """A cell against another. `ratio`: as `ratio_of`. `why_undecided`: a fragment such as "one trial"; None where it is decided."""

    ratio: Estimate
    verdict: Verdict
    why_undecided: str | None = None


def ratio_of(cell: Cell, baseline: Cell, *, paired: bool = True) -> Estimate:
    """How many times better `cell` is than `baseline`: > 1 is better, whichever direction the metric has. Both need a trial that has it.

    Of a score or a count, by how much it is better: a difference, > 0 is better. A metric that is better neither high nor low counts
    as one of which more is better. Cells of one pool and sweep are compared in their layout, where rounds, stretches and drift cancel.
    Others, and all where `paired` is False, as independent samples. The interval is unbounded where a cell has one trial and its workload's
    spread on its pool is unknown, and where no stretch of the sweep has both.
    """
    one, other = (baseline, cell) if cell.metric.lower_is_better else (cell, baseline)
    if paired and cell.layout is not None and cell.layout is baseline.layout:
        difference = cell.layout.difference(one.number, other.number)
        return exponential(difference) if cell.metric.scale is Scale.LOG else difference
    scales = {cell.metric.scale, baseline.metric.scale}
    linear = scales != {Scale.LOG}
    sides = ([_linear(estimate) if linear else estimate for estimate in side.estimates] for side in (one, other))
    known = (one.known, other.known) if len(scales) == 1 else (None, None)  # of logarithms, it says nothing of a difference
    return ratio_interval(*sides, known=known)


def _linear(estimate: Estimate) -> Estimate:
    """A trial's value on the linear scale, where the other side's is there because one of its values is 0 or less."""
    return estimate if estimate.linear else estimate_from_mean(estimate.value, math.inf, 1, 1, LEVEL)


def told_ratio(cell: Cell, other: Cell) -> Estimate:
    """Their ratio as everything that is written of their sweep tells it, so that no two intervals of one ratio stand beside each other.

    Where one is the other's baseline, that of their comparison: of the look that decided it, else of the last one (looks.py). Else of all
    their trials, with the confidence that the stricter of their comparisons is held to.
    """
    own = table_comparison(cell, other)
    return own.ratio if own else _at_level(ratio_of(cell, other), _levels(cell, other))


def table_comparison(cell: Cell, other: Cell) -> Comparison | None:
    """What the table says of the two, where one is the other's baseline; None where neither is, and before it was judged."""
    if cell.baseline is other and cell.speedup is not None:
        return Comparison(cell.speedup, cell.verdict or Verdict.UNDECIDED, cell.why_undecided)
    if other.baseline is cell and other.speedup is not None:
        word = other.verdict or Verdict.UNDECIDED
        return Comparison(other.speedup.inverse(), _INVERSE.get(word, word), other.why_undecided)
    return None


def smallest_effect(metric: Metric, minimum: float | None = None) -> float:
    """The smallest effect that decides between cells: on the logarithmic scale `minimum`, relative; else the metric's, in its unit."""
    return minimum or MINIMUM_EFFECT if metric.scale is Scale.LOG else metric.minimum_effect


def judge_pairs(pairs: Sequence[tuple[Cell, Cell]], minimum: float | None = None) -> list[Comparison]:
    """Each (cell, other). The false discovery rate over all of them is controlled (Benjamini & Hochberg 1995).

    `minimum`: the smallest effect, as in `smallest_effect`. Comparisons with too few trials for a verdict are not among them. Two of which
    one is the other's baseline keep what was found of them, once it was: a pair has one ratio and one verdict.
    """
    found = judge_ratios(pairs, [ratio_of(cell, other) for cell, other in pairs], minimum)
    return [table_comparison(cell, other) or one for (cell, other), one in zip(pairs, found, strict=True)]


def judge_ratios(
    pairs: Sequence[tuple[Cell, Cell]],
    ratios: Sequence[Estimate],
    minimum: float | None = None,
    *,
    missing: Sequence[str | None] | None = None,
    decided: Sequence[float] = (),
) -> list[Comparison]:
    """As `judge_pairs`, with the ratio of each pair. `missing`: of each, what else a verdict lacks, such as a spread that is not known.
    `decided`: `scaled_p` of the table's other comparisons, which earlier looks decided."""
    too_few = [why or _too_few(*pair) for pair, why in zip(pairs, missing or [None] * len(pairs), strict=True)]
    tested = [scaled_p(*pair, ratio) for pair, ratio, why in zip(pairs, ratios, too_few, strict=True) if why is None]
    of_tested = iter(benjamini_hochberg([*tested, *decided]))
    q_values = [1.0 if why else next(of_tested) for why in too_few]
    found = zip(pairs, ratios, too_few, q_values, strict=True)
    return [_judge(cell, other, ratio, why, q, minimum) for (cell, other), ratio, why, q in found]


def scaled_p(cell: Cell, baseline: Cell, ratio: Estimate) -> float:
    """The p-value of their comparison, as one that is held to CHANCE would have it."""
    return _levels(cell, baseline).scaled(ratio.p_value)


def _levels(cell: Cell, baseline: Cell) -> Levels:
    """The stricter of what either cell's comparisons are held to."""
    return min(cell.levels, baseline.levels, key=lambda levels: levels.chance)


def judge_best(best: Cell, others: Sequence[Cell], minimum: float | None = None) -> list[Comparison]:
    """The cell with the best value against each of the `others` that it was picked from.

    The best of equal cells is ahead of each other one by chance, as the largest of several values is. So p-values are those of the range of
    as many cells (`among_many`), which holds for every pair that could have been picked. They are of all trials; a ratio that is told of a
    pair is that of `told_ratio`. What the table leaves undecided stays so, also that the best is the slower one or the same: it is one of
    more comparisons than these.
    """
    ratios = [ratio_of(best, other) for other in others]
    pairs = zip(others, ratios, strict=True)
    adjusted = [_levels(best, other).scaled(among_many(ratio, len(others) + 1)) for other, ratio in pairs]
    judged = zip(others, ratios, adjusted, strict=True)
    found = [_judge(best, other, ratio, _too_few(best, other), p, minimum) for other, ratio, p in judged]
    return [
        replace(_as_open_as_in_table(best, other, one), ratio=told_ratio(best, other)) for other, one in zip(others, found, strict=True)
    ]


def _as_open_as_in_table(best: Cell, other: Cell, found: Comparison) -> Comparison:
    table = table_comparison(best, other)
    if table is None or table.verdict is not Verdict.UNDECIDED or found.verdict is Verdict.UNDECIDED:
        return found
    why = LEFT_OPEN if table.why_undecided in (TOO_WIDE, OF_MANY) else table.why_undecided
    return replace(found, verdict=Verdict.UNDECIDED, why_undecided=why)


def _judge(cell: Cell, baseline: Cell, ratio: Estimate, why: str | None, q_value: float, minimum: float | None) -> Comparison:
    levels = _levels(cell, baseline)
    ratio = _at_level(ratio, levels)
    if why:
        return Comparison(ratio, Verdict.UNDECIDED, why)
    metric = cell.metric if baseline.metric.scale is Scale.LOG else baseline.metric  # of two scales the linear one is compared on
    least = smallest_effect(metric, minimum)
    word = verdict(ratio, minimum=least, q_value=q_value, chance=levels.chance)
    if word is not Verdict.UNDECIDED:
        return Comparison(ratio, word)
    return Comparison(ratio, word, TOO_WIDE if verdict(ratio, minimum=least, chance=levels.chance) is word else OF_MANY)


def _at_level(ratio: Estimate, levels: Levels) -> Estimate:
    return ratio if levels.confidence == LEVEL else ratio.at(levels.confidence)


def _too_few(cell: Cell, baseline: Cell) -> str | None:
    """Why two cells have too few good trials for a verdict. None where they have enough.

    Three a side are enough. Two are where an F test does not find that the spreads differ: the noisier side's two trials may be close to
    each other by chance, and nothing but a third would show it.
    """
    if cell.disturbed or baseline.disturbed:
        return DISTURBED
    if _beside(cell, baseline) == 0:
        return APART
    least = min(len(cell.measured), len(baseline.measured))
    if least < 2:
        return ONE_TRIAL
    if (least := _beside(cell, baseline)) < 2:
        return ONE_IN_COMMON if _beside(cell, baseline, rounds=False) >= 2 else ONE_BESIDE
    if least == 2 and _spreads_differ(cell, baseline):
        return SPREADS_DIFFER
    return None


def _beside(cell: Cell, baseline: Cell, *, rounds: bool = True) -> int:
    """How many trials the fewer have of the two that their comparison is made of, see `Layout.trials`; all they have where they share no
    layout."""
    if cell.layout is None or cell.layout is not baseline.layout:
        return min(len(cell.measured), len(baseline.measured))
    return min(cell.layout.trials(cell.number, baseline.number, rounds=rounds))


def _spreads_differ(cell: Cell, baseline: Cell) -> bool:
    if cell.layout is not None and cell.layout is baseline.layout:
        return cell.layout.spreads_differ(cell.number, baseline.number)
    one, other = (spread_of([estimate.effect for estimate in side.estimates]) for side in (cell, baseline))
    return one is not None and other is not None and spreads_differ(one, other)
