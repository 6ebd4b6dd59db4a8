"""Creep: a slow drift over the nights of a segment, which no single night can tell from its baseline."""

from __future__ import annotations

import numpy as np

from experiments.regression.creep import EVERY, LEAST_NIGHTS, Trend, trend
from experiments.regression.effect import night_value
from tasks.nightly.comparison import Comparison, log_value, worsening


def creep_of(segment: Comparison, tonight: str) -> Trend:
    """The line through a segment's nights. `segment`: a comparison whose `baseline` is the whole segment; `tonight`: a date."""
    nights = nights_of(segment, tonight)
    past, canary = {**segment.past, tonight: segment.now}, {**segment.canary_past, tonight: segment.canary_now}
    y, x = np.full((2, len(nights)), np.nan)
    for place, date in enumerate(nights):
        for values, trials in ((y, past.get(date, [])), (x, canary.get(date, []))):
            if trials:
                values[place] = night_value([log_value(trial, segment.metric) for trial in trials])
    return trend(y, x if np.isfinite(x).any() else None)


def nights_of(segment: Comparison, tonight: str) -> list[str]:
    """The dates of a segment that were measured, oldest first, tonight's among them."""
    return [*segment.baseline, *([tonight] if segment.now else [])]


def is_due(segment: Comparison, tonight: str) -> bool:
    """Whether this is a night on which a suspected creep is measured in pairs against the segment's first commit: one in EVERY."""
    nights = len(nights_of(segment, tonight))
    return nights >= LEAST_NIGHTS and (nights - LEAST_NIGHTS) % EVERY == 0 and bool(creep_of(segment, tonight).suspected(segment.minimum))


def creep(segment: Comparison, tonight: str, alpha: float) -> str | None:
    """A sentence if the line alone shows a creep at level `alpha` that is as large as what matters, else None."""
    line = creep_of(segment, tonight)
    if not bool(line.shown(segment.minimum, alpha)):
        return None
    worse, smallest = (worsening(float(size), segment.metric) for size in (-line.change, line.detectable(segment.minimum, alpha)))
    nights = nights_of(segment, tonight)
    how = f"by a line through its {len(nights)} nights since {nights[0]}, which shows {smallest:.1%} and more with 95 % chance"
    return f"{segment.cell.name}: {segment.metric} crept: it is {worse:.1%} worse than at first, {how}."
