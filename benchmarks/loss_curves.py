"""Simulated loss curves of candidates and references, with noise of their own: nothing here is taken from the code that judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Curves = Mapping[int, NDArray[np.float64]]


@dataclass(frozen=True)
class Family:
    """What differs between two trainings of equal seed that compute the same, in shares of the loss, and what between seeds."""

    name: str
    step: float  # standard deviation of the step-to-step difference
    rho: float = 0.0  # its autocorrelation from step to step
    chaos: float = 0.0  # of the lasting difference once it is grown, such as between two local minima
    grows: float = 100.0  # steps over which it does
    seeds: float = 0.003  # of the lasting difference between seeds
    batch: float = 0.03  # of the batches' difficulty, which trainings of equal seed share
    tails: float | None = None  # degrees of freedom of Student's t that steps are drawn from; None: normal
    scales: bool = False  # the difference grows and shrinks with the batch's difficulty


FAMILIES = (
    Family("rounding only", step=0.0005),
    Family("autocorrelated 0.8", step=0.005, rho=0.8),
    Family("autocorrelated 0.95", step=0.005, rho=0.95),
    Family("heavy tails", step=0.005, rho=0.5, tails=3.0),
    Family("of the batches", step=0.01, scales=True),
    Family("chaotic 0.05 %", step=0.002, rho=0.8, chaos=0.0005),
    Family("chaotic 0.2 %", step=0.002, rho=0.8, chaos=0.002),
    Family("chaotic 1 %", step=0.005, rho=0.8, chaos=0.01, seeds=0.01),
)


def draw(
    family: Family, random: np.random.Generator, steps: int, *, pairs: int, seeds: int, divergence: float, grows: bool = False
) -> tuple[Curves, Curves]:
    """(candidate, reference) by seed. The candidate's loss is higher by `divergence`, a share; `grows`: linearly, twice that at the end."""
    at = np.arange(steps)
    trend = 3.0 + 2.0 * np.exp(-at / (0.15 * steps))
    shape = 1 + divergence * (at / (0.75 * steps) if grows else 1.0)
    candidate, reference = {}, {}
    for seed in range(seeds):
        batches = random.normal(0, family.batch, steps)
        level = random.normal(0, family.seeds) * (1 - np.exp(-at / family.grows))
        common = trend * (1 + batches + level)
        reference[seed] = common * (1 + _own(family, random, batches))
        if seed < pairs:
            candidate[seed] = common * (1 + _own(family, random, batches)) * shape
    return candidate, reference


def _own(family: Family, random: np.random.Generator, batches: NDArray[np.float64]) -> NDArray[np.float64]:
    """What one training has for itself: half of the variance that `Family` states for the difference of two."""
    n = batches.size + 200  # of which the first are cut off: by then the series is stationary
    draws = random.standard_t(family.tails, n) / np.sqrt(family.tails / (family.tails - 2)) if family.tails else random.normal(0, 1, n)
    noise = lfilter([np.sqrt(1 - family.rho**2)], [1, -family.rho], draws)[200:] * family.step
    if family.scales:
        noise *= np.abs(batches) / family.batch
    lasting = random.normal(0, family.chaos) * (1 - np.exp(-np.arange(batches.size) / family.grows))
    return np.asarray((noise + lasting) / np.sqrt(2))
