"""What the layout of cells and rounds would be if it pooled variances over cells: for comparison, not used by reports."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


def ratio_covers(logs: Array, level: float) -> float:
    """The share of ratios to cell 0 whose 95 % interval holds 1, of equal cells with log rates `logs` (cells, rounds).

    The interval is that of the two-way layout, cell and round, with one variance for all cells. If Cochran's (1941) test at `level` finds
    that one cell's variance is larger than the others', paired t intervals instead. `level` 0 always pools.
    """
    cells, rounds = logs.shape
    residuals = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
    squares = (residuals**2).sum(axis=1)
    df = rounds - 1
    largest = squares.max()
    ratio = largest * (cells - 1) / (squares.sum() - largest)
    if cells * stats.f.sf(ratio, df, df * (cells - 1)) < level:
        pairs = logs[1:] - logs[0]
        half = stats.t.ppf(0.975, df) * pairs.std(axis=1, ddof=1) / math.sqrt(rounds)
    else:
        left = (cells - 1) * df
        half = np.full(cells - 1, stats.t.ppf(0.975, left) * math.sqrt(2 * squares.sum() / left / rounds))
    return float((np.abs(logs[1:].mean(axis=1) - logs[0].mean()) <= half).mean())
