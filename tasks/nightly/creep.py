"""A slow drift over many nights, which no single night can tell from its baseline."""

from __future__ import annotations

import math

import numpy as np

from experiments.regression.effect import night_effect, night_value
from tasks.nightly.comparison import Comparison, log_value

_RECENT = 5  # nights in which a creep must show


def creep(comparison: Comparison, tonight: str, alpha: float) -> str | None:
    """A sentence if the last nights of a segment are worse than its first ones; None if not, or with fewer than three times as many nights.

    The baseline moves on with its nights, so it follows a change that is too small for one night. The comparison's `baseline` must
    therefore be the whole segment. `tonight` is a date. The change must be significant at `alpha`, and as large as what matters.
    """
    nights = [*comparison.baseline, *([tonight] if comparison.now else [])]
    if len(nights) < 3 * _RECENT:
        return None
    past, canary = {**comparison.past, tonight: comparison.now}, {**comparison.canary_past, tonight: comparison.canary_now}
    y, x = np.full((2, 1, len(nights), 1), np.nan)
    for place, date in enumerate(nights):
        for values, trials in ((y, past.get(date, [])), (x, canary.get(date, []))):
            if trials:
                values[0, place, 0] = night_value([log_value(trial, comparison.metric) for trial in trials])
    before_last = len(nights) - _RECENT
    first, last = slice(0, before_last // 2), slice(before_last, None)  # the nights between may have crept already
    effect = night_effect(y[:, first], y[:, last, 0], x[:, first], x[:, last, 0])
    size = float(effect.effect[0])
    if not (size < -math.log1p(comparison.minimum) and float(effect.p_value[0]) < alpha):
        return None
    worse = f"its last {_RECENT} nights are {-math.expm1(size):.1%} worse than the first ones since {nights[0]}"
    return f"{comparison.cell.name}: {comparison.metric} crept: {worse}."
