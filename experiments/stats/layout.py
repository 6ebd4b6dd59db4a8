"""Differences between cells whose trials ran in rounds: the two-way layout, cell and round, in which each cell keeps its own variance.

    y = cell + round (+ slope * place) + error,  the error's standard deviation being the cell's own

y is the logarithm of a rate, or a score or count itself. What a round does to all cells (the machine is slower for a while) and a drift
along the sweep cancel. No variance is pooled over cells: a test of whether they are alike finds too little in two or three trials (a noisy
baseline among quiet cells passes it, and then every other cell looks different from it); benchmarks/bench_coverage.py has the figures.

Effects are fitted by weighted least squares. A cell's variance is its sum of squared residuals by the trace of its block of the residual
maker (HC2: MacKinnon & White 1985, Journal of Econometrics 29). The standard error of a difference adds up the variances of the trials that
it is made of, each with its coefficient; its degrees of freedom match the first two moments of that sum (Satterthwaite 1946; for
regression residuals Bell & McCaffrey 2002, Survey Methodology 28(2)). Of two cells alone this is the paired t interval, exactly; of many
cells it tends to Welch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats.estimate import LEVEL, Array, Estimate, estimate_from_mean
from experiments.stats.spread import Spread

_LEFT = 5  # degrees of freedom that must be left after the slope: it costs one, and with fewer that widens intervals by more than a tenth
_PASSES = 2  # of reweighting


class Layout:
    """The trials of the cells that ran together, (n,) each: `values`, on the scale of comparison; `cells` and `rounds`, any numbers that
    name them; `places`, where in the sweep each ran. `errors`: standard error that each trial's steps imply, not finite where unknown;
    they are a floor under the standard error of a difference. `known`: the spread of single trials, for cells without a second one.

    Raises ValueError if the lengths differ, there are no trials or a value is not finite.
    """

    def __init__(
        self,
        values: ArrayLike,
        cells: Sequence[int],
        rounds: Sequence[int],
        places: ArrayLike,
        *,
        errors: ArrayLike | None = None,
        known: Spread | None = None,
    ) -> None:
        self._values: Array = np.asarray(values, dtype=float)
        n = self._values.size
        self._places: Array = np.asarray(places, dtype=float)
        self._errors: Array = np.zeros(n) if errors is None else np.asarray(errors, dtype=float)
        self._known = known
        if not n or {len(cells), len(rounds), self._places.size, self._errors.size} != {n} or not np.isfinite(self._values).all():
            raise ValueError("a layout needs as many finite values as cells, rounds, places and errors, and at least one")
        self._names, self._cell = np.unique(np.asarray(cells), return_inverse=True)
        self._index = {int(name): index for index, name in enumerate(self._names)}
        self._rounds = np.unique(np.asarray(rounds), return_inverse=True)[1]

    def difference(self, a: int, b: int, *, level: float = LEVEL) -> Estimate:
        """Cell `a` less cell `b`, on the linear scale; `n`: the fewer trials of the two.

        Unbounded where a cell has one trial and no spread is known, or no degree of freedom is left. Where the two have no round in common,
        not even by way of other cells, rounds are left out. Raises KeyError for a cell that has no trial.
        """
        contrast = np.zeros(len(self._names))
        contrast[self._index[a]] += 1
        contrast[self._index[b]] -= 1
        fit = self._fit if self._fit.estimates(contrast) else self._without_rounds
        trials = min(int((self._cell == self._index[name]).sum()) for name in (a, b))
        coefficients = fit.coefficients(contrast)
        se, df = self._error(fit, coefficients)
        floor = math.sqrt(float((coefficients**2 * np.where(np.isfinite(self._errors), self._errors, 0.0) ** 2).sum()))
        return estimate_from_mean(float(coefficients @ self._values), max(se, floor), df, trials, level)

    def spreads_differ(self, a: int, b: int, alpha: float) -> bool:
        """Whether an F test at `alpha`, two-sided, finds that the spreads of cells `a` and `b` differ. False where one is not known.

        Where only these two cells ran, their spreads cannot be told apart, and need not be: they are compared in pairs.
        """
        from scipy.special import fdtri

        one, other = (self._index[name] for name in (a, b))
        if min(self._fit.left[[one, other]]) < _NOTHING_LEFT:
            return False
        variances, df = self._fit.variances, self._fit.left
        top, bottom = (one, other) if variances[one] >= variances[other] else (other, one)
        return bool(variances[top] > variances[bottom] * fdtri(df[top], df[bottom], 1 - alpha / 2))

    @cached_property
    def _fit(self) -> _Fit:
        return _fit(self._values, self._cell, self._rounds, self._places)

    @cached_property
    def _without_rounds(self) -> _Fit:
        return _fit(self._values, self._cell, np.zeros_like(self._rounds), None)

    def _error(self, fit: _Fit, coefficients: Array) -> tuple[float, float]:
        """Standard error of the sum of `coefficients` (n,) times values, and its degrees of freedom."""
        parts = np.bincount(self._cell, coefficients**2, len(self._names))  # what a variance of 1 of each cell adds
        single = (fit.left < _NOTHING_LEFT) & (parts > 1e-9)
        known = self._known
        if single.any() and known is None:
            return math.inf, 1.0
        own = np.where(fit.left < _NOTHING_LEFT, 0.0, parts / np.maximum(fit.left, _NOTHING_LEFT))
        variance, spread_of_variance = float(own @ fit.expected), 2 * float(own @ fit.squares @ own)
        estimated = float(own @ (fit.variances * fit.left))
        scale = estimated / variance if variance > 0 else 1.0
        spread_of_variance *= scale**2
        variance = estimated
        if known is not None and single.any():
            more = known.sd**2 * float(parts[single].sum())
            variance, spread_of_variance = variance + more, spread_of_variance + 2 * more**2 / known.df
        df = 2 * variance**2 / spread_of_variance if spread_of_variance > 0 else float(fit.left.sum() or 1)
        return math.sqrt(variance), df


_NOTHING_LEFT = 1e-6  # of a cell's degrees of freedom


@dataclass(frozen=True)
class _Fit:
    """A fitted layout of n trials in c cells. `solve`: (parameters, n), the parameters from the values, cells first.

    `left` (c,): the trace of each cell's block of the residual maker. `variances` (c,): of one trial. `expected` (c,), `squares` (c, c): of
    the residuals' covariance, with these variances, the trace of each cell's block and the sum of squares of each pair of cells' block.
    """

    design: Array
    solve: Array
    left: Array
    variances: Array
    expected: Array
    squares: Array

    def coefficients(self, contrast: Array) -> Array:
        """(n,) weights of the values that make up a contrast of cells (c,)."""
        return np.asarray(contrast @ self.solve[: len(contrast)])

    def estimates(self, contrast: Array) -> bool:
        """Whether the contrast of cells (c,) can be told from the rounds."""
        target = np.zeros(self.design.shape[1])
        target[: len(contrast)] = contrast
        return bool(np.allclose(self.coefficients(contrast) @ self.design, target, atol=1e-6))


def _fit(values: Array, cell: NDArray[np.intp], rounds: NDArray[np.intp], places: Array | None) -> _Fit:
    """Weighted least squares of cells, rounds and, where enough degrees of freedom are left, a slope over `places`.

    A cell that is noisier than the mean counts less for what the cells share, in proportion to its variance. Quieter ones count alike:
    weights that followed every chance in two or three residuals would overfit.
    """
    count, n = int(cell.max()) + 1, values.size
    blocks = np.eye(count)[cell]
    design = np.hstack([blocks, np.eye(int(rounds.max()) + 1)[rounds][:, 1:]])
    if places is not None and np.ptp(places) > 0:
        slope = (places - places.mean()) / np.ptp(places)
        wider = np.column_stack([design, slope])
        if n - np.linalg.matrix_rank(wider) >= _LEFT and np.linalg.matrix_rank(wider) > np.linalg.matrix_rank(design):
            design = wider
    weights = np.ones(count)
    for turn in range(_PASSES + 1):
        roots = np.sqrt(weights[cell])
        solve = np.linalg.pinv(design * roots[:, None], rcond=1e-9) * roots
        maker = np.eye(n) - design @ solve
        left = np.bincount(cell, np.diag(maker).clip(0), count)
        known = left > _NOTHING_LEFT
        variances = np.where(known, np.bincount(cell, (maker @ values) ** 2, count) / np.maximum(left, _NOTHING_LEFT), 0.0)
        if turn < _PASSES and known.any() and (mean := float(variances[known].mean())) > 0:
            weights = mean / np.maximum(variances, mean)
    covariance = (maker * variances[cell]) @ maker.T
    squares = blocks.T @ covariance**2 @ blocks
    return _Fit(design, solve, left, variances, np.bincount(cell, np.diag(covariance), count), squares)
