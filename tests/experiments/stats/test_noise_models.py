"""Errors of means and trends: against covariance matrices written out, and t distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import fft, linalg, special, stats

from experiments.stats import noise_models
from experiments.stats.noise_models import Mixture, error_of_mean, trend


def covariances(n: int) -> list[tuple[float, np.ndarray]]:
    """(prior weight, covariance of n points of variance 1) of each model, as noise_models.py describes them."""
    models = [(0.75, np.eye(n))]
    for part in (0.3 / 1.3, 3 / 4, 1.0):
        times = np.exp(np.linspace(math.log(0.4), math.log(0.7 * n), 12))
        models += [(0.25 / 36, part * linalg.toeplitz(np.exp(-np.arange(n) / time)) + (1 - part) * np.eye(n)) for time in times]
    return models


def by_hand(residuals: np.ndarray, weights: np.ndarray, parameters: int) -> tuple[np.ndarray, np.ndarray]:
    """(posterior weight, standard error) of each model, of the sum of `weights` times the series."""
    n = residuals.size
    cosines = fft.dct(np.eye(n), norm="ortho", axis=0)
    power, combined = (cosines @ residuals)[1:] ** 2, cosines @ weights
    posterior, errors = [], []
    for prior, covariance in covariances(n):
        spectrum = np.diag(cosines @ covariance @ cosines.T)
        scale = float((power / spectrum[1:]).sum())
        posterior.append(prior * np.prod(spectrum[1:] ** -0.5) * scale ** (-(n - 1) / 2))
        errors.append(math.sqrt(scale / (n - parameters) * float((combined**2 * spectrum).sum())))
    return np.array(posterior) / sum(posterior), np.array(errors)


@pytest.mark.parametrize("parameters", [1, 3])
def test_the_error_of_a_mean_averages_over_the_models_it_is_said_to(parameters: int) -> None:
    series = np.cumsum(np.random.default_rng(1).normal(size=23)) + np.random.default_rng(2).normal(size=23)
    residuals = series - series.mean()
    found = error_of_mean(residuals, parameters)
    weight, errors = by_hand(residuals, np.full(23, 1 / 23), parameters)
    assert found.weight == pytest.approx(weight) and found.errors == pytest.approx(errors) and found.df == 23 - parameters
    white = math.sqrt(float((residuals**2).sum()) / (23 - parameters) / 23)
    assert found.errors[0] == pytest.approx(white), "with white noise it is the textbook's"


def test_a_trend_is_a_straight_line_of_least_squares() -> None:
    random = np.random.default_rng(3)
    series = 5 + 0.1 * np.arange(30) + random.normal(size=30)
    change, found = trend(series)
    line = stats.linregress(np.arange(30), series)
    assert change == pytest.approx(29 * line.slope)
    assert found.errors[0] == pytest.approx(29 * line.stderr) and found.df == 28
    centred = np.arange(30) - 14.5
    weight, errors = by_hand(series - line.intercept - line.slope * np.arange(30), 29 * centred / (centred**2).sum(), 2)
    assert found.weight == pytest.approx(weight) and found.errors == pytest.approx(errors)


def test_correlated_noise_widens_the_error_and_white_noise_does_not() -> None:
    random = np.random.default_rng(4)
    shocks = random.normal(size=400)
    slow = np.zeros(400)
    for place in range(1, 400):
        slow[place] = 0.9 * slow[place - 1] + shocks[place]
    for series, least, most in ((shocks, 0.99, 1.1), (slow, 3.0, 7.0)):  # sqrt((1 + 0.9) / (1 - 0.9)) is 4.4
        ratio = error_of_mean(series - series.mean()).half_width(0.95) / (stats.t.ppf(0.975, 399) * stats.sem(series))
        assert least < ratio < most


def test_a_mixture_of_one_is_its_t_distribution() -> None:
    one = Mixture(np.array([1.0]), np.array([2.0]), 7)
    assert one.half_width(0.9) == pytest.approx(2 * stats.t.ppf(0.95, 7))
    assert one.t_alike(0.95) == (pytest.approx(2), pytest.approx(7))
    two = Mixture(np.array([0.5, 0.5]), np.array([1.0, 3.0]), 50)
    half = two.half_width(0.95)
    assert 0.5 * special.stdtr(50, -half) + 0.5 * special.stdtr(50, -half / 3) == pytest.approx(0.025)
    se, df = two.t_alike(0.95)
    assert se * stats.t.ppf(0.975, df) == pytest.approx(half) and se * stats.t.ppf(0.995, df) == pytest.approx(two.half_width(0.99))
    assert 1 < df < 50, "its tails are heavier"
    near = Mixture(np.array([0.95, 0.05]), np.array([1.0, 1.1]), 50)
    se, df = near.t_alike(0.95)
    assert 40 < df < 50 and se * stats.t.ppf(0.995, df) == pytest.approx(near.half_width(0.99)), "hardly heavier"
    far = Mixture(np.array([0.98, 0.02]), np.array([1.0, 1e6]), 50)
    assert far.t_alike(0.95)[1] == 1, "heavier than any t with a degree of freedom"


def test_the_models_are_made_once_for_a_length() -> None:
    assert noise_models._models(40)[0] is noise_models._models(40)[0]
