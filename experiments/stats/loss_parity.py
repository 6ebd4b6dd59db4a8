"""The loss-parity test: whether a loss curve stays within a band around that of its reference precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

ROUNDING = 0.005  # relative offset of a window's mean loss that low precision may cause
CHANCE = 0.01  # probability that a curve of the same distribution leaves the band anywhere


@dataclass(frozen=True)
class Parity:
    """`inside`: the curve stays within the band. `left_at`: first step (1-based) of the first window outside. Arrays: (windows,)."""

    inside: bool
    left_at: int | None
    worst: float  # largest |difference| / half-width of the band; inf for a loss that is not finite
    steps: NDArray[np.int64]  # last step of each window
    reference: NDArray[np.float64]  # mean reference loss of each window
    half_width: NDArray[np.float64]


def loss_parity(reference: ArrayLike, curve: ArrayLike, *, others: Sequence[ArrayLike] = ()) -> Parity:
    """Compare `curve` (n,) with `reference` (n,): losses by step, with the same seed and data order. `others`: repeats of the reference.

    Both curves are averaged over windows of w = max(5, n / 10) steps and compared window by window. Rounding makes two trainings drift
    apart although they learn the same, until their step-to-step noise is independent. The band's half-width therefore is
    z * sd * sqrt(2 / w). sd is the reference's step-to-step noise, from successive differences (von Neumann 1941), here by their median so
    that one spike does not widen the band. If the windows of the reference's repeats spread more, their spread is used. z is the normal
    quantile for a probability of 1 % over all windows together (Bonferroni). The half-width is at least 0.5 % of the loss.

    Curves of different lengths are compared over their common steps. Raises ValueError for fewer than 5 common steps.
    """
    full, other = np.asarray(reference, dtype=float), np.asarray(curve, dtype=float)
    n = min(full.size, other.size)
    if n < 5:
        raise ValueError(f"{n} steps in common are too few to judge a loss curve")
    width = max(5, n // 10)
    windows = n // width
    base, means = (_windows(losses, width, windows) for losses in (full, other))
    noise = float(np.median(np.abs(np.diff(full[np.isfinite(full)])))) / (math.sqrt(2) * special.ndtri(0.75))
    spread = noise / math.sqrt(width)
    repeats = [_windows(np.asarray(losses, dtype=float), width, windows) for losses in others if np.asarray(losses).size >= n]
    if repeats:
        spread = max(spread, float(np.sqrt(np.mean([(repeat - base) ** 2 for repeat in repeats]) / 2)))
    z = float(special.ndtri(1 - CHANCE / (2 * windows)))
    half = np.maximum(z * spread * math.sqrt(2), ROUNDING * np.abs(base))
    ratio = np.where(np.isfinite(means), np.abs(means - base) / half, np.inf)
    outside = np.flatnonzero(ratio > 1)
    first = int(outside[0]) * width + 1 if outside.size else None
    return Parity(not outside.size, first, float(ratio.max()), (np.arange(windows) + 1) * width, base, half)


def _windows(losses: NDArray[np.float64], width: int, windows: int) -> NDArray[np.float64]:
    """Means (windows,) over consecutive windows of `width` steps."""
    return np.asarray(losses[: windows * width].reshape(windows, width).mean(axis=1))
