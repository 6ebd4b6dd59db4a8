"""Simulated noise of sweeps whose truth is known: log rates of equal cells, trial by trial, in the order in which trials run.

Nothing here uses the code under test. The order of the rounds (A B C C B A) is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Array = NDArray[np.float64]
Make = Callable[[np.random.Generator, int, int], Array]  # generator, cells, rounds -> log rates (cells, rounds)


@dataclass(frozen=True)
class Scenario:
    """A kind of noise; all cells have the same true rate."""

    name: str
    description: str
    make: Make


def places(cells: int, rounds: int) -> NDArray[np.int_]:
    """(cells, rounds): when each trial runs, from 0; every second round runs backwards."""
    forward = np.arange(cells)
    return np.stack([number * cells + (forward[::-1] if number % 2 else forward) for number in range(rounds)], axis=1)


def normal(sd: float) -> Make:
    """Independent trials, all cells with the same standard deviation."""
    return lambda random, cells, rounds: sd * random.normal(size=(cells, rounds))


def one_noisy(quiet: float, noisy: float, which: int) -> Make:
    """One cell's trials are further apart: cell 0 is the baseline."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        sd = np.full(cells, quiet)
        sd[which] = noisy
        return np.asarray(sd[:, None] * random.normal(size=(cells, rounds)))

    return make


def mixed(sd: float, log_sd: float) -> Make:
    """Each cell has a standard deviation of its own, from a lognormal distribution."""
    return lambda random, cells, rounds: sd * np.exp(log_sd * random.normal(size=(cells, 1))) * random.normal(size=(cells, rounds))


def half_noisy(quiet: float, noisy: float) -> Make:
    """Every second cell, the baseline among them, is noisy."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        sd = np.where(np.arange(cells) % 2, quiet, noisy)
        return np.asarray(sd[:, None] * random.normal(size=(cells, rounds)))

    return make


def drifting(sd: float, drift: float) -> Make:
    """The machine slows down steadily, by `drift` from the first trial of the sweep to its last."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        when = places(cells, rounds)
        return np.asarray(sd * random.normal(size=when.shape) - drift * when / max(1, when.size - 1))

    return make


def wandering(sd: float, step: float) -> Make:
    """The machine's speed is a random walk with `step` from trial to trial."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        when = places(cells, rounds)
        return np.asarray(sd * random.normal(size=when.shape) + np.cumsum(step * random.normal(size=when.size))[when])

    return make


def autocorrelated(sd: float, phi: float) -> Make:
    """Trials that follow each other are alike: AR(1), stationary."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        when = places(cells, rounds)
        noise = lfilter([1], [1, -phi], random.normal(size=when.size + 100))[100:]
        return np.asarray(sd * np.sqrt(1 - phi**2) * noise[when])

    return make


def by_rounds(sd: float, between: float) -> Make:
    """What a round shares, such as another user of the machine for an hour, is larger than what trials do not."""
    return lambda random, cells, rounds: sd * random.normal(size=(cells, rounds)) + between * random.normal(size=(1, rounds))


def by_rounds_of_half(sd: float, between: float) -> Make:
    """What a round does, it does to half of the cells alone, drawn for each sweep: to those that wait for the host, say."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        hit = random.permutation(cells)[:, None] < cells // 2
        return np.asarray(sd * random.normal(size=(cells, rounds)) + between * random.normal(size=(1, rounds)) * hit)

    return make


def throttled(sd: float, depth: float, chance: float) -> Make:
    """Spells of throttling: each trial starts one with probability `chance`, it lasts three trials on average and takes `depth`."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        when = places(cells, rounds)
        slow, on = np.zeros(when.size), False
        for place in range(when.size):
            on = bool(random.random() < (2 / 3 if on else chance))
            slow[place] = on
        return np.asarray(sd * random.normal(size=when.shape) - depth * slow[when])

    return make


def with_outliers(sd: float, chance: float, slower: float) -> Make:
    """Some trials are slower, by `slower` on average (exponential); the rest has tails (Student's t, 4 degrees of freedom)."""

    def make(random: np.random.Generator, cells: int, rounds: int) -> Array:
        shape = (cells, rounds)
        bad = (random.random(shape) < chance) * random.exponential(slower, shape)
        return np.asarray(sd * random.standard_t(4, size=shape) / np.sqrt(2) - bad)

    return make


SCENARIOS = (
    Scenario("quiet", "trials 0.5 % apart", normal(0.005)),
    Scenario("equal", "trials 1 % apart", normal(0.01)),
    Scenario("rough", "trials 3 % apart", normal(0.03)),
    Scenario("baseline 5 %, others 0.5 %", "a noisy baseline, such as one that waits for data", one_noisy(0.005, 0.05, 0)),
    Scenario("baseline 5 %, others 1 %", "the same, less plain to see", one_noisy(0.01, 0.05, 0)),
    Scenario("noisy cell", "one cell 5 %, the others 0.5 %", one_noisy(0.005, 0.05, 1)),
    Scenario("half noisy", "every second cell 5 %, the others 0.5 %", half_noisy(0.005, 0.05)),
    Scenario("quiet baseline", "the baseline 0.5 %, the others 5 %", one_noisy(0.05, 0.005, 0)),
    Scenario("mixed", "each cell its own, around 1 % by a factor of 2.7", mixed(0.01, 1.0)),
    Scenario("far mixed", "the same by a factor of 4.5", mixed(0.01, 1.5)),
    Scenario("drift", "trials 0.5 % apart, 5 % slower from the first to the last", drifting(0.005, 0.05)),
    Scenario("random walk", "trials 0.5 % apart, the machine wanders by 0.5 % a trial", wandering(0.005, 0.005)),
    Scenario("autocorrelated", "trials 1 % apart, neighbours correlated by 0.6", autocorrelated(0.01, 0.6)),
    Scenario("rounds", "trials 0.5 % apart, rounds 2 %", by_rounds(0.005, 0.02)),
    Scenario("rounds of half", "trials 0.5 % apart, rounds 2 % in half of the cells", by_rounds_of_half(0.005, 0.02)),
    Scenario("rounds of half, 5 %", "the same with 5 %", by_rounds_of_half(0.005, 0.05)),
    Scenario("throttling", "trials 0.5 % apart, spells of 4 % slower over three trials", throttled(0.005, 0.04, 0.1)),
    Scenario("outliers", "trials 0.8 % apart, heavy tails, one in twenty 8 % slower", with_outliers(0.008, 0.05, 0.08)),
)
