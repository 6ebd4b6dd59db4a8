"""Differences between cells whose trials ran in rounds: the two-way layout, cell and round, in which each cell keeps its own variance.

    y = cell + round + stretch (+ slope * place) + error,  the error's standard deviation being the cell's own

y is the logarithm of a rate, or a score or count itself. What a round does to all cells (the machine is slower for a while), what a stretch
of the sweep does to them (another host, another day) and a drift along it cancel: a cell is compared by trials that have others of their
stretch beside them. Cells that no stretch has both of, not even by way of other cells, are not compared.

No variance is pooled over cells: a test of whether they are alike finds too little in two or three trials (a noisy baseline among quiet
cells passes it, and then every other cell looks different from it); benchmarks/bench_coverage.py has the figures.

Effects are fitted by weighted least squares. A cell's variance is its sum of squared residuals by the trace of its block of the residual
maker (HC2: MacKinnon & White 1985, Journal of Econometrics 29). The standard error of a difference adds up the variances of the trials that
it is made of, each with its coefficient; its degrees of freedom match the first two moments of that sum (Satterthwaite 1946; for
regression residuals Bell & McCaffrey 2002, Survey Methodology 28(2)). Of two cells alone this is the paired t interval, exactly; of many
cells it tends to Welch's. Where an F test finds that the spreads of two cells differ they are compared in pairs, by their common rounds
alone: Satterthwaite's degrees of freedom, estimated too, are then too many at times, those of pairs are exact. So are two whose common
rounds show a far smaller error than the layout makes of it (an F test): beside as many noisy cells the effects of rounds are the noisy
ones', and two quiet cells' residuals are what these leave. So are all cells where a test finds that rounds act on some cells otherwise than
on others (round_effects.py): what a round does does not cancel then but in a pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats.estimate import LEVEL, Array, Estimate, estimate_from_mean
from experiments.stats.round_effects import differ_by_cell
from experiments.stats.spread import Spread, far_wider, spreads_differ

_LEFT = 5  # degrees of freedom that must be left after the slope: it costs one, and with fewer that widens intervals by more than a tenth
_PASSES = 5  # of reweighting
_USUAL = 2.0  # times the median variance: cells up to there count alike


class Layout:
    """The trials of the cells that ran together, (n,) each: `values`, on the scale of comparison; `cells` and `rounds`, any numbers that
    name them; `places`, where in the sweep each ran. `errors`: standard error that each trial's steps imply, not finite where unknown;
    they are a floor under the standard error of a difference. `known`: a cell -> the spread of single trials, where it has no second one.
    `stretches`: any numbers that name the host and time that each trial is of; all one where not given.

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
        known: Mapping[int, Spread] | None = None,
        stretches: Sequence[int] | None = None,
    ) -> None:
        given = np.asarray(values, dtype=float)
        n = given.size
        self._places: Array = np.asarray(places, dtype=float)
        self._errors: Array = np.zeros(n) if errors is None else np.asarray(errors, dtype=float)
        self._known = known or {}
        within = [0] * n if stretches is None else stretches
        if not n or {len(cells), len(rounds), self._places.size, self._errors.size, len(within)} != {n} or not np.isfinite(given).all():
            raise ValueError("a layout needs as many finite values as cells, rounds, places, errors and stretches, and at least one")
        self._centre = float(given.mean())
        self._values: Array = given - self._centre  # differences stay, rounding errors shrink
        self._names, self._cell = np.unique(np.asarray(cells), return_inverse=True)
        self._index = {int(name): index for index, name in enumerate(self._names)}
        self._rounds = np.unique(np.asarray(rounds), return_inverse=True)[1]
        self._stretches = np.unique(np.asarray(within), return_inverse=True)[1]
        self._sources: dict[tuple[int, int], Layout] = {}

    def difference(self, a: int, b: int, *, level: float = LEVEL) -> Estimate:
        """Cell `a` less cell `b`, on the linear scale; `n`: the fewer trials of the two.

        Of those two cells' trials alone where their spreads differ, where they show a far smaller error, or where rounds act on some cells
        otherwise than on others. Unbounded where a cell has one trial and no spread is known, where no degree of freedom is left, and where
        the two are `apart`. Where they have no round in common, not even by way of other cells, rounds are left out. Raises KeyError for a
        cell without a trial.
        """
        if (source := self._source(a, b)) is not self:
            return source.difference(a, b, level=level)
        one, other = self._index[a], self._index[b]
        fit = self._fit_of(one, other)
        trials = int(min(fit.counts[one], fit.counts[other]))
        if self.apart(a, b):
            return estimate_from_mean(float(fit.means[one] - fit.means[other]), math.inf, 1, trials, level)
        se, df = self._error(fit, one, other)
        return estimate_from_mean(fit.difference(one, other), max(se, fit.floor(one, other)), df, trials, level)

    @property
    def one_stretch(self) -> bool:
        """Whether all trials are of one host and time."""
        return not self._stretches.any()

    def apart(self, a: int, b: int) -> bool:
        """Whether no stretch has trials of both cells, not even by way of others: then stretch and cell cannot be told from each other."""
        return not self.one_stretch and not self._fit_of(self._index[a], self._index[b]).estimates(self._index[a], self._index[b])

    def trials(self, a: int, b: int, *, rounds: bool = True) -> tuple[int, int]:
        """How many trials of each of two cells their difference is made of. One that has nothing beside it to be compared with says
        nothing: in its stretch or, where rounds are told apart, in its round; `rounds` False: in its stretch. Another cell's trial is
        beside it only where the difference is made of that cell too.
        """
        if (source := self._source(a, b)) is not self:
            return source.trials(a, b, rounds=rounds)
        one, other = self._index[a], self._index[b]
        fit = self._fit_of(one, other) if rounds else self._without_rounds
        if self.apart(a, b):
            return 0, 0
        coefficients = fit.coefficients(one, other, self._cell)
        used = (int((np.abs(coefficients[self._cell == cell]) > _ROUNDING_OF_PARTS).sum()) for cell in (one, other))
        return next(used), next(used)

    def level(self, cell: int) -> float:
        """The cell's mean without what rounds and stretches did to it, as far as other cells show that: as if its trials had been spread
        over them as all trials are. Raises KeyError for a cell that has no trial."""
        fit, at = self._fit, self._index[cell]
        everywhere = fit.counts @ fit.between / fit.counts.sum()
        return self._centre + float(fit.means[at] - (fit.between[at] - everywhere) @ fit.effects)

    def _fit_of(self, one: int, other: int) -> _Fit:
        """The fit that these two are compared by."""
        return self._fit if self._fit.estimates(one, other) else self._without_rounds

    def spreads_differ(self, a: int, b: int) -> bool:
        """Whether the spreads of cells `a` and `b` differ, as `spread.spreads_differ`. False where one is not known.

        Where only these two cells ran, their spreads cannot be told apart, and need not be: they are compared in pairs.
        """
        found = [(float(self._fit.variances[index]), float(self._fit.left[index])) for index in (self._index[a], self._index[b])]
        if min(left for _, left in found) < _NOTHING_LEFT:
            return False
        return spreads_differ(*(Spread(math.sqrt(variance), left) for variance, left in found))

    @cached_property
    def rounds_differ(self) -> bool:
        """Whether rounds act on some cells otherwise than on others, as `round_effects.differ_by_cell`."""

        def left_over(values: Array) -> Array:
            return self._fit.left_over(values, self._cell)

        residuals, sds = left_over(self._values[:, None])[:, 0], np.sqrt(self._fit.variances[self._cell])
        residuals[np.abs(residuals) < _ROUNDING * np.abs(self._values).max()] = 0.0
        return differ_by_cell(residuals, sds, self._cell, self._rounds, left_over)

    def _source(self, a: int, b: int) -> Layout:
        """What the difference of two cells is made of: this layout or, see `difference`, that of those two alone."""
        if (a, b) not in self._sources:
            self._sources[a, b] = self._chosen(a, b)
        return self._sources[a, b]

    def _chosen(self, a: int, b: int) -> Layout:
        pairs = self._alone(a, b) if len(self._names) > 2 else self
        if pairs is self or self.rounds_differ:
            return pairs
        own, here = pairs._spread(a, b), self._spread(a, b)
        return pairs if own and (self.spreads_differ(a, b) or (here and far_wider(here, own))) else self

    def _spread(self, a: int, b: int) -> Spread | None:
        """The error of the difference of two cells and its degrees of freedom, without the floor under it; None where it is not bounded."""
        if self.apart(a, b):
            return None
        one, other = self._index[a], self._index[b]
        se, df = self._error(self._fit_of(one, other), one, other)
        return Spread(se, df) if math.isfinite(se) else None

    def _alone(self, a: int, b: int) -> Layout:
        """The layout of two of the cells."""
        mine = (self._cell == self._index[a]) | (self._cell == self._index[b])
        cells = [int(name) for name in self._names[self._cell[mine]]]
        rounds, stretches = ([int(number) for number in of[mine]] for of in (self._rounds, self._stretches))
        more = {"errors": self._errors[mine], "known": self._known, "stretches": stretches}
        return Layout(self._values[mine], cells, rounds, self._places[mine], **more)

    @cached_property
    def _fit(self) -> _Fit:
        return _fit(self._values, self._errors, self._cell, _dummies(self._rounds, self._stretches), self._places)

    @cached_property
    def _without_rounds(self) -> _Fit:
        return _fit(self._values, self._errors, self._cell, _dummies(self._stretches), None)

    def _error(self, fit: _Fit, one: int, other: int) -> tuple[float, float]:
        """Standard error of the difference of two cells (indices) and its degrees of freedom."""
        parts = fit.parts(one, other)  # (c,): what each cell's variance counts in the difference's
        single = (fit.left < _NOTHING_LEFT) & (parts > 1e-9)
        of_single: dict[Spread, float] = {}  # with what it counts: cells of one spread share its error
        for cell, part in zip(self._names[single], parts[single], strict=True):
            known = self._known.get(int(cell))
            if known is None:
                return math.inf, 1.0
            of_single[known] = of_single.get(known, 0.0) + float(part)
        own = np.where(fit.left < _NOTHING_LEFT, 0.0, parts / np.maximum(fit.left, _NOTHING_LEFT))
        variance, spread_of_variance = float(own @ fit.expected), 2 * fit.squares(own)
        estimated = float(own @ (fit.variances * fit.left))
        scale = estimated / variance if variance > 0 else 1.0
        spread_of_variance *= scale**2
        variance = estimated
        for known, part in of_single.items():
            more = known.sd**2 * part
            variance, spread_of_variance = variance + more, spread_of_variance + 2 * more**2 / known.df
        df = 2 * variance**2 / spread_of_variance if spread_of_variance > 0 else float(fit.left.sum() or 1)
        return math.sqrt(variance), df


_NOTHING_LEFT = 1e-6  # of a cell's degrees of freedom
_ROUNDING = 1e-12
_ROUNDING_OF_PARTS = 1e-9


@dataclass(frozen=True)
class _Fit:
    """A fitted layout of n trials in c cells, with r columns that cells share: rounds, stretches and, perhaps, a slope.

    The shared columns are few and the cells many, so the cells are solved for first (Frisch & Waugh 1933, Econometrica 1; Lovell 1963,
    JASA 58): what is left is a regression on the columns less their means in each cell, and no matrix is larger than (n, r). The residual
    maker is M = C - X G X' W, where C takes each cell's mean off, X (n, r) are the `within` columns, W the weights and G = (X' W X)^+.

    So cell a less cell b is the difference of their means less that of their shared columns' means times the columns' effects, and a trial
    of cell c has the coefficient k_c / n_c - w_c x' h in it: k is 1 for a, -1 for b, else 0, x its row of X and h = G (the difference of
    the columns' means). Sums of squares of these coefficients over a cell follow from its sums of squares of x: no comparison goes through
    all trials.

    `means` (c,): of the values. `between` (c, r): the columns' means. `effects` (r,): of the columns. `gain`: G. `normal`: X' W X.
    `weights`, `counts`, `variances` (c,): of each cell; a variance is of one trial. `moments` (c, r, r): X' X of each cell. `errors`: the
    trials' squared own errors in each cell: their sum (c,), with X (c, r) and with X' X (c, r, r). `left` (c,): the trace of each cell's
    block of M. `within`: X.
    """

    means: Array
    between: Array
    effects: Array
    gain: Array
    normal: Array
    weights: Array
    counts: Array
    variances: Array
    moments: Array
    errors: tuple[Array, Array, Array]
    left: Array
    within: Array

    def coefficients(self, a: int, b: int, cell: NDArray[np.intp]) -> Array:
        """(n,): what each trial counts in cell a less cell b."""
        found = -self.weights[cell] * (self.within @ self._gained(a, b))
        found[cell == a] += 1 / self.counts[a]
        found[cell == b] -= 1 / self.counts[b]
        return np.asarray(found)

    def difference(self, a: int, b: int) -> float:
        """Cell a less cell b."""
        return float(self.means[a] - self.means[b] - (self.between[a] - self.between[b]) @ self.effects)

    def left_over(self, values: Array, cell: NDArray[np.intp]) -> Array:
        """(n, d): what this fit leaves of values (n, d)."""
        own = values - (_summed(values, cell, self.counts.size) / self.counts[:, None])[cell]
        return np.asarray(own - self.within @ (self.gain @ (self.within.T @ (self.weights[cell, None] * own))))

    def parts(self, a: int, b: int) -> Array:
        """(c,): the sum of squares of the coefficients of each cell's trials in that difference."""
        gained = self._gained(a, b)
        parts = self.weights**2 * _traces(np.outer(gained, gained), self.moments)
        parts[[a, b]] += 1 / self.counts[[a, b]]
        return np.asarray(parts)

    def floor(self, a: int, b: int) -> float:
        """The standard error of that difference where trials differ by their own errors alone."""
        gained, (sums, with_x, squares) = self._gained(a, b), self.errors
        variance = float(self.weights**2 @ _traces(np.outer(gained, gained), squares))
        for cell, sign in ((a, 1.0), (b, -1.0)):
            own = sign / self.counts[cell]
            variance += float(own**2 * sums[cell] - 2 * own * self.weights[cell] * (with_x[cell] @ gained))
        return math.sqrt(max(0.0, variance))

    def estimates(self, a: int, b: int) -> bool:
        """Whether the difference of two cells can be told from the rounds."""
        shared = self.between[a] - self.between[b]
        return bool((np.abs(self.normal @ (self.gain @ shared) - shared) <= 1e-6).all())

    def _gained(self, a: int, b: int) -> Array:
        return np.asarray(self.gain @ (self.between[a] - self.between[b]))

    @cached_property
    def _covariance(self) -> tuple[Array, Array]:
        """Q (r, r) and u (c,), of which M V M', the residuals' covariance with these variances V, is made: its block of cells a and b is
        X_a (Q - (u_a + u_b) G) X_b', and with a = b the variance times C_a more."""
        u = self.weights * self.variances
        return self.gain @ self._sum(self.weights * u) @ self.gain, u

    @cached_property
    def expected(self) -> Array:
        """(c,): the trace of each cell's block of the residuals' covariance."""
        return np.asarray(self.variances * (self.counts - 1) + self._inside)

    @cached_property
    def _inside(self) -> Array:
        """(c,): the same of X_a (Q - 2 u_a G) X_a'."""
        q, u = self._covariance
        return np.asarray(_traces(q, self.moments) - 2 * u * _traces(self.gain, self.moments))

    def _sum(self, weights: Array) -> Array:
        """(r, r): `moments`, each times its cell's of `weights` (c,)."""
        r = self.moments.shape[1]
        return np.asarray((weights @ self.moments.reshape(len(self.counts), r * r)).reshape(r, r))

    def squares(self, own: Array) -> float:
        """The sum over all pairs of cells a and b of own_a own_b times the sum of squares of their block of the residuals' covariance."""
        (q, u), gain = self._covariance, self.gain
        none, once, twice = self._sum(own), self._sum(own * u), self._sum(own * u**2)
        pairs = np.trace(none @ q @ none @ q) - 4 * np.trace(once @ q @ none @ gain)
        pairs += 2 * np.trace(twice @ gain @ none @ gain) + 2 * np.trace(once @ gain @ once @ gain)
        return float(pairs + (own**2 * self.variances * (self.variances * (self.counts - 1) + 2 * self._inside)).sum())


def _traces(matrix: Array, moments: Array) -> Array:
    """(c,): the trace of `matrix` (r, r) times each of `moments` (c, r, r), which are symmetric."""
    return np.asarray(moments.reshape(len(moments), matrix.size) @ matrix.ravel())


def _fit(values: Array, errors: Array, cell: NDArray[np.intp], columns: Array, places: Array | None) -> _Fit:
    """Weighted least squares of cells, of the `columns` that they share (n, r) and, where enough degrees of freedom are left, a slope over
    `places`.

    A cell that is far noisier than most counts less for what the cells share, in proportion to its variance. The others count alike:
    weights that followed every chance in two or three residuals would overfit.
    """
    counts: Array = np.bincount(cell).astype(float)
    between, within = _centred(_with_slope(columns, counts, cell, places), cell, counts)
    means = np.bincount(cell, values) / counts
    own = values - means[cell]
    moments = _summed(within[:, :, None] * within[:, None, :], cell, counts.size)
    weights = np.ones(counts.size)
    for turn in range(_PASSES + 1):
        weighted = within * weights[cell, None]
        normal = within.T @ weighted
        gain = _inverse(normal)
        kept = 1 - 1 / counts[cell] - weights[cell] * np.einsum("ni,ij,nj->n", within, gain, within)  # the diagonal of the residual maker
        left: Array = np.asarray(np.bincount(cell, kept.clip(0)), dtype=float)
        known = left > _NOTHING_LEFT
        effects = gain @ (weighted.T @ own)
        residuals = own - within @ effects
        residuals[np.abs(residuals) < _ROUNDING * np.abs(values).max()] = 0.0
        variances = np.where(known, np.bincount(cell, residuals**2) / np.maximum(left, _NOTHING_LEFT), 0.0)
        if turn == _PASSES or not known.any() or not (usual := _USUAL * float(np.median(variances[known]))) > 0:
            break
        before, weights = weights, usual / np.maximum(variances, usual)
        if np.array_equal(weights, before):
            break  # as of two cells alone, whose variances are equal: another pass would find the same
    squares = np.where(np.isfinite(errors), errors, 0.0) ** 2
    with_x = squares[:, None] * within
    of_errors = (
        np.asarray(np.bincount(cell, squares), dtype=float),
        _summed(with_x, cell, counts.size),
        _summed(with_x[:, :, None] * within[:, None, :], cell, counts.size),
    )
    return _Fit(means, between, effects, gain, normal, weights, counts, variances, moments, of_errors, left, within)


def _summed(values: Array, cell: NDArray[np.intp], cells: int) -> Array:
    """(cells, ...): the sum of `values` (n, ...) over each cell."""
    sums = np.zeros((cells, *values.shape[1:]))
    np.add.at(sums, cell, values)
    return sums


def _dummies(*factors: NDArray[np.intp]) -> Array:
    """(n, r): a column for each level of each factor (n,) but its first."""
    return np.column_stack([np.eye(int(factor.max()) + 1)[factor][:, 1:] for factor in factors])


def _with_slope(columns: Array, counts: Array, cell: NDArray[np.intp], places: Array | None) -> Array:
    """(n, r): what cells share: `columns`, and the slope where it can be told from them and enough is left."""
    if places is None or not np.ptp(places) > 0:
        return columns
    slope = (places - places.mean()) / np.ptp(places)
    within, beside = (_centred(one, cell, counts)[1] for one in (columns, slope[:, None]))
    normal = within.T @ within
    gain = _inverse(normal)
    own = beside[:, 0] - within @ (gain @ (within.T @ beside[:, 0]))  # what cells and rounds do not say
    rank = counts.size + round(float(np.trace(gain @ normal)))
    if cell.size - rank - 1 >= _LEFT and float(own @ own) > _NOTHING_LEFT:
        return np.column_stack([columns, slope])
    return columns


def _centred(columns: Array, cell: NDArray[np.intp], counts: Array) -> tuple[Array, Array]:
    """(the means of the columns in each cell (c, r), the columns less these (n, r))."""
    means = _summed(columns, cell, counts.size) / counts[:, None]
    return means, columns - means[cell]


def _inverse(normal: Array) -> Array:
    """(r, r): of a normal matrix; the shortest solution where there are several."""
    return np.asarray(np.linalg.pinv(normal, rcond=1e-10, hermitian=True))
