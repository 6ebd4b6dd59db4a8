"""How many more rounds a comparison would take to be decided, by what is known of it now."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.metric import Metric, Scale
from experiments.stats.estimate import LEVEL, Estimate, t_tail, t_value
from experiments.stats.interim_levels import look_levels, next_look
from experiments.stats.interim_looks import Look
from experiments.stats.verdict import CHANCE
from tasks.analysis.judge_cells import smallest_effect

SENSIBLE = 50  # rounds; what would take more is not worth waiting for
_AHEAD = 8  # rounds for which the levels are taken: they change little with how many there are


def rounds_left(ratio: Estimate | None, metric: Metric, looks: Sequence[Look], minimum: float | None = None) -> int | None:
    """About how many rounds after the last look would decide a comparison; None for more than SENSIBLE, or where nothing tells. `ratio`: of
    its two cells, or their difference.

    With the effect and the spread as they are now: the standard error falls with the square root of the rounds and the degrees of freedom
    rise with them, until faster or slower is significant or the interval lies within the smallest effect (`minimum` as in
    `smallest_effect`). The false discovery rate is left out.
    """
    if ratio is None or not looks or looks[-1].round < 2 or not math.isfinite(ratio.se):
        return None
    least = smallest_effect(metric, minimum)
    edge, effect, now = math.log1p(least) if metric.scale is Scale.LOG else least, abs(ratio.effect), looks[-1].round
    chance, miss = _levels_ahead(looks)
    for rounds in range(now + 1, now + SENSIBLE + 1):
        se, df = ratio.se * math.sqrt(now / rounds), ratio.df * (rounds - 1) / (now - 1)
        if effect >= edge and (se == 0 or 2 * t_tail(effect / se, df) < chance):
            return rounds - now
        if effect + t_value(1 - miss, df) * se < edge:
            return rounds - now
    return None


def _levels_ahead(looks: Sequence[Look]) -> tuple[float, float]:
    """The levels of faster and slower, and of the interval, at the last of some further looks."""
    more, last = list(looks), looks[-1].round + _AHEAD
    for at in range(looks[-1].round + 1, last + 1):
        more.append(next_look(more, at, last))
    return look_levels(more, CHANCE)[-1], look_levels(more, 1 - LEVEL)[-1]
