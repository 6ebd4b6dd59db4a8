"""Simulated step times whose long-run mean is known. Shares no code with what is tested on them.

A family gives (times (runs, n) in units of an undisturbed step, their long-run mean).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Family = Callable[[np.random.Generator, int, int], tuple[Array, float]]  # generator, runs, n

BEFORE = 300  # steps that are dropped, so that the first one kept is like any other


def autoregressive(random: np.random.Generator, runs: int, n: int, phi: float, sd: float = 0.02) -> tuple[Array, float]:
    """Logarithms follow an autoregression of order 1 with coefficient `phi` and standard deviation `sd`."""
    shocks = sd * math.sqrt(1 - phi**2) * random.normal(size=(runs, BEFORE + n))
    logs = np.empty_like(shocks)
    logs[:, 0] = shocks[:, 0]
    for step in range(1, BEFORE + n):
        logs[:, step] = phi * logs[:, step - 1] + shocks[:, step]
    return np.exp(logs[:, BEFORE:]), math.exp(sd**2 / 2)


def throttled(
    random: np.random.Generator, runs: int, n: int, dwell: float, slow_share: float = 0.5, slower: float = 0.04, sd: float = 0.01
) -> tuple[Array, float]:
    """Two clock rates, 4 % apart. A slow spell lasts `dwell` steps on average (geometric); steps vary by 1 % beside that."""
    fast_dwell = dwell * (1 - slow_share) / slow_share
    slow = np.empty((runs, n), dtype=bool)
    slow[:, 0] = random.random(runs) < slow_share
    for step in range(1, n):
        ends = random.random(runs) < np.where(slow[:, step - 1], 1 / dwell, 1 / fast_dwell)
        slow[:, step] = slow[:, step - 1] ^ ends
    times = (1 + slower * slow) * np.exp(sd * random.normal(size=(runs, n)))
    return times, (1 + slower * slow_share) * math.exp(sd**2 / 2)


def outliers(
    random: np.random.Generator, runs: int, n: int, share: float = 0.05, by: float = 0.08, sd: float = 0.01
) -> tuple[Array, float]:
    """One step in twenty is slower, by 8 % on average (exponential); the others vary by 1 %."""
    late = (random.random((runs, n)) < share) * random.exponential(by, (runs, n))
    return np.exp(sd * random.normal(size=(runs, n))) + late, math.exp(sd**2 / 2) + share * by


def heavy_tails(random: np.random.Generator, runs: int, n: int, scale: float = 0.01) -> tuple[Array, float]:
    """Student's t with 3 degrees of freedom times 1 %, cut at ±90 %."""
    return 1 + np.clip(scale * random.standard_t(3, (runs, n)), -0.9, 0.9), 1.0


FAMILIES: dict[str, Family] = {
    "white": partial(autoregressive, phi=0.0),
    "AR(1) 0.5": partial(autoregressive, phi=0.5),
    "AR(1) 0.9": partial(autoregressive, phi=0.9),
    "throttling, spells of 5": partial(throttled, dwell=5),
    "throttling, spells of 20": partial(throttled, dwell=20),
    "throttling, spells of 50": partial(throttled, dwell=50),
    "throttling, a fifth of the time, spells of 10": partial(throttled, dwell=10, slow_share=0.2),
    "outliers": outliers,
    "heavy tails": heavy_tails,
}
