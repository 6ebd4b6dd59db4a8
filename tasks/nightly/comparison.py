"""One metric of one cell beside its own history and its node's canary: what is compared, and the effects of many comparisons at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from experiments.regression.definition import METRICS
from experiments.regression.effect import NightEffect, night_effect
from tasks.nightly.history import Measured
from tasks.nightly.store import NightCell

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Tonight's trials of a cell, its past nights, and the same of its pool's canary: those that count (`counted`).

    `now`: tonight's, disturbed ones where it has no others. `baseline`: dates of the nights to compare with, oldest first. `past`,
    `canary_past`: date -> trials, of every night. `alarm`: dates of an open alarm before tonight.
    `uncounted`: how many past nights have the metric in disturbed trials alone.
    """

    cell: NightCell
    metric: str
    baseline: list[str]
    past: Mapping[str, list[Measured]]
    now: list[Measured]
    canary_past: Mapping[str, list[Measured]]
    canary_now: list[Measured]
    alarm: list[str]
    uncounted: int = 0

    @property
    def minimum(self) -> float:
        """The smallest relative change that matters: 0.03 is 3 %."""
        return self.cell.minimum_effect.get(self.metric, METRICS[self.metric].minimum_effect)

    @property
    def disturbed(self) -> str | None:
        """What disturbed the first of tonight's trials, where something disturbed each: no verdict rests on them. None where one counts."""
        measured = [trial for trial in self.now if self.metric in trial.values]
        return measured[0].disturbed if measured and not counted(measured, self.metric) else None


def counts(disturbed: str | None, metric: str) -> bool:
    """Whether a trial's value of a metric counts, by what disturbed the trial. What else runs changes no loss: what depends on the seed
    always counts."""
    return METRICS[metric].depends_on_seed or not disturbed


def counted(trials: Sequence[Measured], metric: str) -> list[Measured]:
    """Those whose metric `counts`."""
    return [trial for trial in trials if counts(trial.disturbed, metric)]


def counted_tonight(trials: Sequence[Measured], metric: str) -> list[Measured]:
    """`counted`, or all where none of these has the metric, to be shown."""
    kept = counted(trials, metric)
    return kept if any(metric in trial.values for trial in kept) else list(trials)


def counted_nights(nights: Mapping[str, Sequence[Measured]], metric: str) -> dict[str, list[Measured]]:
    """`counted` of each date, without the nights of which nothing counts."""
    kept = {date: counted(trials, metric) for date, trials in nights.items()}
    return {date: trials for date, trials in kept.items() if trials}


def nights_with(nights: Mapping[str, Sequence[Measured]], metric: str) -> list[str]:
    """The dates of which some trial has the metric."""
    return [date for date, trials in nights.items() if any(metric in trial.values for trial in trials)]


def effects_of(comparisons: Sequence[Comparison], least_nights: int) -> NightEffect:
    """The effect of each comparison, arrays of shape (comparisons,); NaN where the baseline has fewer nights than `least_nights`."""
    nights = max(1, *(len(each.baseline) for each in comparisons))
    width = max(1, max((len(trials) for each in comparisons for trials in (each.now, *each.past.values())), default=1))
    y, x = np.full((2, len(comparisons), nights, width), np.nan)  # cells and canaries; shorter nights are padded with NaN
    t, u = np.full((2, len(comparisons), width), np.nan)
    for index, each in enumerate(comparisons):
        _fill(t[index], each.now, each.metric)
        _fill_canary(u[index], each.now, each.canary_now, each.metric)
        for place, date in enumerate(each.baseline):
            _fill(y[index, place], each.past[date], each.metric)
            _fill_canary(x[index, place], each.past[date], each.canary_past.get(date, []), each.metric)
    effects = night_effect(y, t, x, u)
    enough = np.array([len(each.baseline) >= least_nights for each in comparisons])
    effect, se, raw = (np.where(enough, values, np.nan) for values in (effects.effect, effects.se, effects.raw))
    return replace(effects, effect=effect, se=se, raw=raw)


def _fill(row: Array, trials: Sequence[Measured], metric: str) -> None:
    for place, trial in enumerate(trials[: row.size]):
        row[place] = log_value(trial, metric)


def _fill_canary(row: Array, trials: Sequence[Measured], canary: Sequence[Measured], metric: str) -> None:
    """Beside each trial the canary of its round on its host; without one, the mean of that host's canaries; else nothing."""
    for place, trial in enumerate(trials[: row.size]):
        same_host = [other for other in canary if other.host == trial.host]
        same_round = [log_value(other, metric) for other in same_host if other.round == trial.round]
        known = [value for value in same_round or [log_value(other, metric) for other in same_host] if math.isfinite(value)]
        if known:
            row[place] = sum(known) / len(known)


def log_value(trial: Measured, metric: str) -> float:
    """`log_metric` of a trial of a night."""
    return log_metric(trial.values.get(metric), metric)


def log_metric(value: float | None, metric: str) -> float:
    """The logarithm of a metric's value, its sign turned so that more is better; NaN for one that is missing or not above 0."""
    if value is None or not value > 0:
        return math.nan
    return math.log(value) if METRICS[metric].higher_is_better else -math.log(value)


def worsening(size: float, metric: str) -> float:
    """The share of its value that a metric loses, or gains where less is better, by getting worse by `size`, a positive logarithm."""
    return -math.expm1(-size) if METRICS[metric].higher_is_better else math.expm1(size)


def values_of(trials: Sequence[Measured], metric: str) -> list[float]:
    """The metric of those trials that have it, in its own unit."""
    return [trial.values[metric] for trial in trials if metric in trial.values]
