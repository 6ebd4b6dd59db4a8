"""Creep: a change too small for any night, which adds up over a segment. Pure, on arrays.

A trend over the segment's nights says which cells are suspected. Where code may be the cause, pairs of tonight's commit against the first
good one of the segment decide (`judge_pairs`); where it cannot, the trend itself does, with the power that `Trend.detectable` states.

Nights that follow each other wander, which looks like a trend, and a segment is too short to show how much they do. So the trend averages
over how much neighbouring nights share (AR(1)), each value weighted by how well it explains the nights (Bayesian model averaging, Hoeting
et al. 1999, Statistical Science 14(4)). An estimate of it put in instead is too low where it matters, and told creep of nights that share
0.8 five times as often as promised. Weights are set by simulation: benchmarks/bench_creep.py says how often a creep is told falsely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from experiments.regression.decision import ALPHA
from experiments.regression.effect import RESOLUTION, relative_to_canary
from experiments.regression.screen import SHARE
from experiments.stats.noise_models import Mixture

Array = NDArray[np.float64]

LEAST_NIGHTS = 10  # a line through fewer says little
EVERY = 5  # nights between two sets of pairs against the same first commit
_SUSPICION = 0.05  # one-sided level; pairs confirm it
_SHARED = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98])  # correlation of neighbouring nights
_INDEPENDENT = 0.6  # prior weight of the first; the others have the rest in equal parts
_PRIOR = np.array([_INDEPENDENT, *[(1 - _INDEPENDENT) / (len(_SHARED) - 1)] * (len(_SHARED) - 1)])
_LEAST_SQUARES = 1e-24  # of a line without noise, whose likelihood would be infinite


@dataclass(frozen=True)
class Trend:
    """What lines through a segment's nights say a cell changed from its first night to tonight, as logarithms; below 0 is worse.

    A line for each model of what neighbouring nights share: `weight`, `changes`, `errors` (standard errors), of shape (..., models), and
    degrees of freedom `df` (...). NaN with fewer nights than LEAST_NIGHTS.
    """

    weight: Array
    changes: Array
    errors: Array
    df: Array

    @property
    def change(self) -> Array:
        """The mean of the lines, by their weight."""
        return np.asarray((self.weight * self.changes).sum(-1))

    def suspected(self, minimum: ArrayLike) -> NDArray[np.bool_]:
        """Where the cell looks worse by SHARE of what matters, at a one-sided level of 5 %: worth pairs against the first good commit."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.change <= -SHARE * np.log1p(minimum)) & (self._tail() < _SUSPICION))

    def shown(self, minimum: ArrayLike, alpha: float = ALPHA) -> NDArray[np.bool_]:
        """Where the trend alone shows it: worse by all that matters (`minimum`), at a two-sided level of `alpha`."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.change <= -np.log1p(minimum)) & (2 * self._tail() < alpha))

    def detectable(self, minimum: float, alpha: float = ALPHA, power: float = 0.95) -> Array:
        """The smallest loss over the segment, as a positive logarithm, that `shown` finds with probability `power`; NaN where unknown."""
        smallest = np.full(self.df.shape, np.nan)
        for place in np.ndindex(self.df.shape):
            if np.isfinite(self.errors[place]).all():
                error = Mixture(self.weight[place], self.errors[place], float(self.df[place]))
                smallest[place] = max(error.half_width(1 - alpha), np.log1p(minimum)) + error.half_width(2 * power - 1)
        return smallest

    def _tail(self) -> Array:
        """One-sided p-value (...) of no change, against a loss."""
        return np.asarray((self.weight * special.stdtr(self.df[..., None], self.changes / self.errors)).sum(-1))


def trend(nights: ArrayLike, canary: ArrayLike | None = None) -> Trend:
    """The trend of the values of a segment's nights (..., n), oldest first, tonight last, more is better; NaN: missing.

    With a canary of the same shape, what both share is subtracted first, as in `night_effect`.
    """
    y = np.asarray(nights, dtype=float)
    if canary is not None:
        y = relative_to_canary(y, np.asarray(canary, dtype=float))
    shape, length = y.shape[:-1], y.shape[-1] - 1
    cases = y.reshape(math.prod(shape), y.shape[-1])  # -1 would not do for a segment without nights
    found = np.full((3, len(cases), len(_SHARED)), np.nan)
    there = np.isfinite(cases)
    patterns, of = np.unique(there, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if pattern.sum() >= LEAST_NIGHTS:
            rows = of.ravel() == number
            found[:, rows] = _lines(np.flatnonzero(pattern), cases[rows][:, pattern])
    weight, slopes, errors = found.reshape(3, *shape, len(_SHARED))
    df = np.maximum(there.sum(-1) - 2, 1).astype(float).reshape(shape)
    return Trend(weight, slopes * length, np.fmax(errors * length, np.where(np.isfinite(errors), RESOLUTION, np.nan)), df)


def _lines(nights: NDArray[np.intp], values: Array) -> Array:
    """Weight, slope and standard error, (3, cases, models), of lines by generalised least squares through `values` (cases, nights).

    Weights are prior times restricted likelihood (Harville 1974, Biometrika 61(2)), with the scale of the noise integrated out: what
    nights share is not taken for less because a line was fitted. Of each night what the one before it tells of it is taken away, which
    leaves independent noise: the time that takes grows with the nights, which matters where a segment has lasted a year.
    """
    carried = _SHARED[:, None] ** np.diff(nights)  # (models, nights - 1): more nights between two of them, less is shared
    new = 1 - carried**2  # variance of a night that the one before it does not tell

    def independent(series: Array) -> Array:
        """(models, nights, ...) of (nights, ...)."""
        first = np.broadcast_to(series[:1], (len(_SHARED), 1, series.shape[1]))
        return np.concatenate([first, (series[1:] - carried[..., None] * series[:-1]) / np.sqrt(new)[..., None]], axis=1)

    design, observed = independent(np.stack([np.ones(nights.size), nights - nights.mean()], axis=1)), independent(values.T)
    information = design.transpose(0, 2, 1) @ design
    covariance = np.linalg.inv(information)
    lines = covariance @ (design.transpose(0, 2, 1) @ observed)  # (models, 2, cases)
    squares = np.maximum(((observed - design @ lines) ** 2).sum(1), _LEAST_SQUARES)
    df = nights.size - 2
    fit = np.log(_PRIOR) - (np.log(new).sum(1) + np.linalg.slogdet(information)[1]) / 2
    log_weight = fit[:, None] - df / 2 * np.log(squares)
    weight = np.exp(log_weight - log_weight.max(0))
    errors = np.sqrt(squares / df * covariance[:, 1, 1, None])
    return np.stack([(weight / weight.sum(0)).T, lines[:, 1].T, errors.T])
