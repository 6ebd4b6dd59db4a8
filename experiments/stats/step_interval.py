"""The interval of one trial's rate over its steps. A pure function on arrays, without random numbers.

Steps are not independent: clocks, memory and neighbours change slowly. noise_models.py says how the interval allows for it.
benchmarks/bench_coverage_steps.py says how often it holds the truth.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from experiments.stats.estimate import LEVEL, Array, Estimate, finite_series, t_value
from experiments.stats.noise_models import MOST_POINTS, error_of_mean

LEAST_STEPS = 40  # fewer steps do not show how they are correlated
LEAST_EFFECTIVE = 0.7  # an interval as wide as that of fewer independent steps rests on the longest correlation time allowed, not on data
TOO_SHORT = "too short to tell"  # what reports say of a trial without an interval


@dataclass(frozen=True)
class StepInterval:
    """A trial's rate over its steps. `effective_steps`: as many independent steps would give an interval as narrow; None if unknown."""

    estimate: Estimate
    effective_steps: float | None

    @property
    def known(self) -> bool:
        """Whether the steps are enough to tell; otherwise the estimate's interval is unbounded."""
        return math.isfinite(self.estimate.se)


def step_interval(samples: ArrayLike, times: ArrayLike, *, kinds: Sequence[Hashable] | None = None, level: float = LEVEL) -> StepInterval:
    """Samples/s = sum of `samples` (n,) / sum of `times` (n,) in s, with an interval for the long-run rate of this trial.

    `kinds` (n,): each step's kind, where kinds of steps cost differently and their mix is part of the workload. Differences between kinds
    are then no noise: the interval is that of the rate with this mix. None: all steps are of one kind.
    The interval is unbounded ("too short to tell") for fewer than LEAST_STEPS steps (beyond one for each further kind), and if it would be
    wider than that of LEAST_EFFECTIVE independent steps.
    Raises ValueError if the lengths differ or are 0, a value is not finite, or a sum is not positive.
    """
    count, seconds = finite_series(samples), finite_series(times)
    if count.shape != seconds.shape:
        raise ValueError(f"{count.size} sample counts for {seconds.size} times")
    if kinds is not None and len(kinds) != count.size:
        raise ValueError(f"{len(kinds)} kinds for {count.size} steps")
    if not float(seconds.sum()) > 0 or not float(count.sum()) > 0:
        raise ValueError("samples and times must sum to more than 0")
    rate = float(count.sum()) / float(seconds.sum())
    excess, parameters = _by_kind((rate * seconds - count) / float(count.mean()), kinds)  # each step's share of the error of the mean time
    unknown = Estimate(rate, 0.0, math.inf, math.inf, 1)
    if count.size - parameters + 1 < LEAST_STEPS:
        return StepInterval(unknown, None)
    variance = float((excess**2).sum()) / (count.size - parameters)
    block = -(-count.size // MOST_POINTS)
    points = excess[: count.size // block * block].reshape(-1, block).mean(1)
    if not float(points.var()) > 1e-24:
        return StepInterval(Estimate(rate, rate, rate, 0.0, count.size - parameters), float(count.size))
    error = error_of_mean(points, parameters)
    half, normal = error.half_width(level), t_value(level, math.inf)
    effective = min(float(count.size), variance * (normal / half) ** 2)
    low, high = _skewed(half / normal, normal, float((excess**3).mean()) / float((excess**2).mean()) ** 1.5 / math.sqrt(effective))
    if effective < LEAST_EFFECTIVE or low <= -1:  # a mean time of 0 is in the interval
        return StepInterval(unknown, effective)
    return StepInterval(Estimate(rate, rate / (1 + high), rate / (1 + low), *error.t_alike(level)), effective)


def _by_kind(excess: Array, kinds: Sequence[Hashable] | None) -> tuple[Array, int]:
    """(`excess` (n,) less the mean of its kind, the number of means taken)."""
    if kinds is None:
        return excess - excess.mean(), 1
    number = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    place = np.array([number[kind] for kind in kinds])
    means = np.bincount(place, excess) / np.bincount(place)
    return excess - means[place], len(number)


def _skewed(error: float, t: float, skewness: float) -> tuple[float, float]:
    """The ends of an interval around 0 of a mean with standard error `error` and skewness `skewness` (Willink 2005, equation 9).

    They are -t and t times `error` without skewness. With a positive one the upper end is farther away.
    """
    beta = skewness / 6
    if abs(beta) < 1e-6:
        return -t * error, t * error
    ends = [(float(np.cbrt(1 + 6 * beta * (z - beta))) - 1) / (2 * beta) for z in (t, -t)]
    return -ends[0] * error, -ends[1] * error
