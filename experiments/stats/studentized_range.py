"""The studentized range: the largest difference between k means, over an independent estimate of their standard error.

scipy has it too and integrates adaptively, 25 ms a value; a sweep asks for one for each cell. Here are the same two integrals by the
trapezoidal rule, which for smooth integrands that vanish at both ends errs by less than any power of the step (Trefethen & Weideman 2014,
SIAM Review 56(3)). tests/experiments/stats/test_studentized_range.py compares the two.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

_Z = np.linspace(-9.0, 9.0, 145)  # the largest of the k values
_DENSITY = np.exp(-(_Z**2) / 2) / math.sqrt(2 * math.pi) * (_Z[1] - _Z[0])
_BELOW = special.ndtr(_Z)
_INFINITE = 1e5  # degrees of freedom
_FARTHEST, _NOTHING = 16.0, 1e-15
_OUTSIDE = 1e-13  # of the scale's distribution at either end is left out
_STEP, _LEAST = 0.04, 81  # of the scale's logarithm: at most so wide, and at least so many


def range_sf(q: float, k: int, df: float) -> float:
    """P(the range of k standard normal values > q times an independent chi / sqrt(df)). q > 0, k >= 2, df >= 1; errs by less than 1e-9."""
    if df >= _INFINITE:
        return float(_of_normal(np.array([q]), k)[0].clip(0.0, 1.0))
    ends = [0.5 * math.log(float(special.chdtri(df, 1 - tail)) / df) for tail in (_OUTSIDE, 1 - _OUTSIDE)]
    log_scale = np.linspace(ends[0], ends[1], max(_LEAST, math.ceil((ends[1] - ends[0]) / _STEP)))
    scale = np.exp(log_scale)
    # the density of log(chi / sqrt(df)), up to its norm; relative to its mode, where it is 1
    weights = np.exp(df * (log_scale - (scale**2 - 1) / 2))
    return float(np.clip((weights * _of_normal(q * scale, k)).sum() / weights.sum(), 0.0, 1.0))


def _of_normal(w: Array, k: int) -> Array:
    """(m,): P(the range of k standard normal values > w), for each of `w` (m,)."""
    result = np.where(w < _FARTHEST, 1.0, 0.0)
    open_ = (w < _FARTHEST) & (k * (2 * special.ndtr(w / 2) - 1) ** (k - 1) > _NOTHING)  # below, the k values never lie within w
    inside = (_BELOW - special.ndtr(_Z - w[open_, None])).clip(0.0)
    with np.errstate(divide="ignore"):
        powers = np.exp((k - 1) * np.log(inside))  # several times as fast as `**`
    result[open_] = 1 - k * powers @ _DENSITY
    return np.asarray(result)
