"""The block bootstrap against another implementation of it: the package arch.

Block lengths are not compared here: arch takes the first quiet lag where Politis & White take the last loud one, so it is a little longer.
test_ratio.py holds them to the definition, and to arch where the two agree.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from arch.bootstrap import CircularBlockBootstrap
from scipy.signal import lfilter

from experiments.stats.intervals import block_length, throughput_interval


def step_times(seed: int, n: int, phi: float) -> np.ndarray:
    """Seconds of `n` steps whose logarithms are an AR(1) process."""
    noise = lfilter([1], [1, -phi], np.random.default_rng(seed).normal(size=n + 50))[50:]
    return np.asarray(0.1 * np.exp(0.02 * noise))


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_standard_error_is_archs_but_for_the_widening_for_few_blocks(phi: float) -> None:
    n = 240
    times, samples = step_times(7, n, phi), np.full(n, 8.0)
    ours = throughput_interval(samples, times, draws=8000)
    length = max(block_length(samples - ours.value * times), -(-n // 12))
    bootstrap = CircularBlockBootstrap(length, samples, times, seed=1)
    rates = bootstrap.apply(lambda count, seconds: np.array([count.sum() / seconds.sum()]), 8000)[:, 0]
    widening = math.sqrt((ours.df + 1) / ours.df)
    assert ours.df == n // length - 1
    assert ours.se / widening == pytest.approx(float(np.log(rates).std()), rel=0.04)  # both of 8000 draws: 0.8 % each
