"""The loss-parity gate: does a curve stay in the band of its reference precision? A pure function on two loss curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

ROUNDING = 0.005  # relative offset of a window's mean loss that low precision may add without being another training
CHANCE = 0.01  # of a curve of the same distribution leaving the band anywhere


@dataclass(frozen=True)
class Parity:
    """`inside` says the curve kept to the band; `left_at` is the first step of the window where it did not."""

    inside: bool
    left_at: int | None
    worst: float  # largest |difference| over the band's half-width; inf for a loss that is not finite
    steps: NDArray[np.int64]  # last step of each window
    reference: NDArray[np.float64]  # mean reference loss of each window
    half_width: NDArray[np.float64]


def loss_parity(reference: ArrayLike, curve: ArrayLike, *, others: Sequence[ArrayLike] = ()) -> Parity:
    """Judge `curve` (n,) against `reference` (n,): losses by step, same seed and data order. `others`: repeats of the reference.

    Both are averaged over windows of w = max(5, n / 10) steps and compared window by window. Rounding makes two trainings drift apart
    step by step although they learn the same, up to the point where their step-to-step noise is independent; so the band's half-width is
    z * sd * sqrt(2 / w), where sd is the reference's own step-to-step noise (von Neumann 1941: from successive differences, here by
    their median so that one spike does not widen the band), or the spread of the windows of the reference's repeats where that is larger.
    z is the normal quantile for a chance of 1 % over all windows together (Bonferroni). At least half a percent of the loss is allowed.

    Raises ValueError if there are fewer than 5 steps in common.
    """
    full, other = np.asarray(reference, dtype=float), np.asarray(curve, dtype=float)
    n = min(full.size, other.size)
    if n < 5:
        raise ValueError(f"{n} steps in common are too few to judge a loss curve")
    width = max(5, n // 10)
    windows = n // width
    base, mine = (_windows(losses, width, windows) for losses in (full, other))
    noise = float(np.median(np.abs(np.diff(full[np.isfinite(full)])))) / (math.sqrt(2) * special.ndtri(0.75))
    spread = noise / math.sqrt(width)
    repeats = [_windows(np.asarray(losses, dtype=float), width, windows) for losses in others if np.asarray(losses).size >= n]
    if repeats:
        spread = max(spread, float(np.sqrt(np.mean([(repeat - base) ** 2 for repeat in repeats]) / 2)))
    z = float(special.ndtri(1 - CHANCE / (2 * windows)))
    half = np.maximum(z * spread * math.sqrt(2), ROUNDING * np.abs(base))
    ratio = np.where(np.isfinite(mine), np.abs(mine - base) / half, np.inf)
    outside = np.flatnonzero(ratio > 1)
    first = int(outside[0]) * width + 1 if outside.size else None
    return Parity(not outside.size, first, float(ratio.max()), (np.arange(windows) + 1) * width, base, half)


def _windows(losses: NDArray[np.float64], width: int, windows: int) -> NDArray[np.float64]:
    return np.asarray(losses[: windows * width].reshape(windows, width).mean(axis=1))
