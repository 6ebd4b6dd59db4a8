"""Differences between cells whose trials ran in rounds: the two-way layout, cell and round, in which each cell keeps its own variance.

    y = cell + round (+ slope * place) + error,  the error's standard deviation being the cell's own

y is the logarithm of a rate, or a score or count itself. What a round does to all cells (the machine is slower for a while) and a drift
along the sweep cancel. No variance is pooled over cells: a test of whether they are alike finds too little in two or three trials (a noisy
baseline among quiet cells passes it, and then every other cell looks different from it); benchmarks/bench_coverage.py has the figures.

Effects are fitted by weighted least squares. A cell's variance is its sum of squared residuals by the trace of its block of the residual
maker (HC2: MacKinnon & White 1985, Journal of Econometrics 29). The standard error of a difference adds up the variances of the trials that
it is made of, each with its coefficient; its degrees of freedom match the first two moments of that sum (Satterthwaite 1946; for
regression residuals Bell & McCaffrey 2002, Survey Methodology 28(2)). Of two cells alone this is the paired t interval, exactly; of many
cells it tends to Welch's. Where an F test finds that the spreads of two cells differ they are compared in pairs, by their common rounds
alone: Satterthwaite's degrees of freedom, estimated too, are then too many at times, those of pairs are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats.estimate import LEVEL, Array, Estimate, estimate_from_mean
from experiments.stats.spread import Spread, spreads_differ

_LEFT = 5  # degrees of freedom that must be left after the slope: it costs one, and with fewer that widens intervals by more than a tenth
_PASSES = 5  # of reweighting
_USUAL = 2.0  # times the median variance: cells up to there count alike


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
        given = np.asarray(values, dtype=float)
        n = given.size
        self._places: Array = np.asarray(places, dtype=float)
        self._errors: Array = np.zeros(n) if errors is None else np.asarray(errors, dtype=float)
        self._known = known
        if not n or {len(cells), len(rounds), self._places.size, self._errors.size} != {n} or not np.isfinite(given).all():
            raise ValueError("a layout needs as many finite values as cells, rounds, places and errors, and at least one")
        self._values: Array = given - given.mean()  # differences stay, rounding errors shrink
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
        if len(self._names) > 2 and self.spreads_differ(a, b):
            pairs = self._alone(a, b).difference(a, b, level=level)
            if math.isfinite(pairs.se):
                return pairs
        fit = self._fit if self._fit.estimates(contrast) else self._without_rounds
        trials = min(int((self._cell == self._index[name]).sum()) for name in (a, b))
        coefficients = fit.coefficients(contrast)
        se, df = self._error(fit, coefficients)
        floor = math.sqrt(float((coefficients**2 * np.where(np.isfinite(self._errors), self._errors, 0.0) ** 2).sum()))
        return estimate_from_mean(float(coefficients @ self._values), max(se, floor), df, trials, level)

    def spreads_differ(self, a: int, b: int) -> bool:
        """Whether the spreads of cells `a` and `b` differ, as `spread.spreads_differ`. False where one is not known.

        Where only these two cells ran, their spreads cannot be told apart, and need not be: they are compared in pairs.
        """
        found = [(float(self._fit.variances[index]), float(self._fit.left[index])) for index in (self._index[a], self._index[b])]
        if min(left for _, left in found) < _NOTHING_LEFT:
            return False
        return spreads_differ(*(Spread(math.sqrt(variance), left) for variance, left in found))

    def _alone(self, a: int, b: int) -> Layout:
        """The layout of two of the cells."""
        mine = np.isin(self._cell, [self._index[a], self._index[b]])
        cells = [int(name) for name in self._names[self._cell[mine]]]
        rounds = [int(number) for number in self._rounds[mine]]
        return Layout(self._values[mine], cells, rounds, self._places[mine], errors=self._errors[mine], known=self._known)

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
_ROUNDING = 1e-12


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

    A cell that is far noisier than most counts less for what the cells share, in proportion to its variance. The others count alike:
    weights that followed every chance in two or three residuals would overfit.
    """
    count, n = int(cell.max()) + 1, values.size
    blocks = np.eye(count)[cell]
    design = np.hstack([blocks, np.eye(int(rounds.max()) + 1)[rounds][:, 1:]])
    if places is not None and np.ptp(places) > 0:
        slope = (places - places.mean()) / np.ptp(places)
        solve = _solve(design, np.ones(n))
        own = slope - design @ (solve @ slope)  # what cells and rounds do not say
        if n - round(float(np.einsum("ij,ji->", design, solve))) - 1 >= _LEFT and float(own @ own) > _NOTHING_LEFT:
            design = np.column_stack([design, slope])
    weights = np.ones(count)
    for turn in range(_PASSES + 1):
        solve = _solve(design, weights[cell])
        maker = np.eye(n) - design @ solve
        left: Array = np.bincount(cell, np.diag(maker).clip(0), count).astype(float)
        known = left > _NOTHING_LEFT
        residuals = maker @ values
        residuals[np.abs(residuals) < _ROUNDING * np.abs(values).max()] = 0.0
        variances = np.where(known, np.bincount(cell, residuals**2, count) / np.maximum(left, _NOTHING_LEFT), 0.0)
        if turn < _PASSES and known.any() and (usual := _USUAL * float(np.median(variances[known]))) > 0:
            weights = usual / np.maximum(variances, usual)
    covariance = (maker * variances[cell]) @ maker.T
    expected: Array = np.bincount(cell, np.diag(covariance), count).astype(float)
    return _Fit(design, solve, left, variances, expected, blocks.T @ covariance**2 @ blocks)


def _solve(design: Array, weights: Array) -> Array:
    """(parameters, n): the weighted least squares solution from the values, the shortest where there are several."""
    weighted = design * weights[:, None]
    return np.asarray(np.linalg.pinv(design.T @ weighted, rcond=1e-10, hermitian=True) @ weighted.T)
