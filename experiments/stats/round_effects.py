"""Whether rounds act on all cells of a layout alike, as a comparison across cells assumes.

Something may slow some cells and not others for a round: those that wait for the host, beside those that the device bounds; or a round's
seed makes inputs longer for some. The effect that the fit gives such a round lies between the two kinds, what is left of it in their
residuals is too small, and so are intervals that borrow from all cells. Such residuals go together: in the space of rounds they lie along
one direction, up to their signs. Residuals of independent trials do not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEVEL = 0.05
_DRAWS = 199


def differ_by_cell(
    residuals: Array, sds: Array, cell: NDArray[np.intp], rounds: NDArray[np.intp], left_over: Callable[[Array], Array]
) -> bool:
    """Whether the residuals of cells go together over the rounds by more than those of independent trials do: a test at 5 %.

    `residuals` (n,): of the fitted layout. `sds` (n,): standard deviation of each trial, its cell's. `cell`, `rounds` (n,): indices of
    each trial. `left_over`: what the fit leaves of noise, (n, d) -> (n, d). Cells of fewer than three trials say nothing, and with fewer
    than three cells or rounds nothing can be told: False.

    The statistic is the largest eigenvalue of the rounds' moments of the cells' residuals, each cell scaled to length one, as a share of
    their sum (Johnson & Graybill 1972, JASA 67, there for equal variances). Its law under independent normal trials is drawn, with the
    cells' own variances and what the fit does to their residuals: a Monte Carlo test (Dufour 2006, Journal of Econometrics 133).
    """
    counts = np.bincount(cell)
    told = counts[cell] >= 3
    if (counts >= 3).sum() < 3 or np.unique(rounds[told]).size < 3:
        return False
    noise = np.random.default_rng(0).normal(size=(cell.size, _DRAWS)) * sds[:, None]
    found = _together(np.column_stack([residuals, left_over(noise)])[told], cell[told], rounds[told])
    return bool((1 + (found[1:] >= found[0]).sum()) / (_DRAWS + 1) <= _LEVEL)


def _together(residuals: Array, cell: NDArray[np.intp], rounds: NDArray[np.intp]) -> Array:
    """(d,): the statistic of each column of residuals (n, d)."""
    table = np.zeros((int(cell.max()) + 1, int(rounds.max()) + 1, residuals.shape[1]))
    np.add.at(table, (cell, rounds), residuals)
    length = np.sqrt((table**2).sum(axis=1, keepdims=True))
    table = np.divide(table, length, out=np.zeros_like(table), where=length > 0)
    moments = np.einsum("crd,csd->drs", table, table)
    return np.asarray(np.linalg.eigvalsh(moments)[:, -1] / np.trace(moments, axis1=1, axis2=2).clip(1e-300))
