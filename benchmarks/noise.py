"""Realistic noise of nights: log values of cells and a canary, trial by trial, and of pairs of two commits. Simulated, but for `recorded`.

The last JUDGED nights are those that rules judge; what a noise does of a sudden, it does from the first of them on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.recorded_noise import RECORDED, recorded_nights
from experiments.regression.paired_test import PAIRS, TRIES

Array = NDArray[np.float64]
Random = np.random.Generator

JUDGED = 3  # nights
TRIALS = 10  # of a cell on a night at most
PLANNED = TRIES * PAIRS[-1]  # pairs of a cell on a night at most
_SPELL = 4.0  # trials that other work disturbs one after the other, on average
SENSITIVITIES = (0.5, 1.0, 1.5)  # of cells to what their node does, where the canary's is 1
RECORDING = Path(__file__).resolve().parents[1] / RECORDED


@dataclass(frozen=True)
class Disturbed:
    """Which of the values of `Nights` are of trials beside which others worked, in the same shapes."""

    cells: NDArray[np.bool_]
    canary: NDArray[np.bool_]
    pairs: NDArray[np.bool_]


@dataclass(frozen=True)
class Nights:
    """Log values where more is better: cells (runs, cells, nights, TRIALS) and the canary (runs, nights, TRIALS); tonight is the last.

    `pairs` (runs, cells, JUDGED, PLANNED, 2): on each judged night the good commit and tonight's, in turns A B B A. Nothing in here is a
    change of code. `counted` (cells,): the cells whose false alarms count. `disturbed`: which trials are, None for none of them.
    """

    cells: Array
    canary: Array
    pairs: Array
    counted: NDArray[np.bool_]
    disturbed: Disturbed | None = None


Trial = Callable[[tuple[int, ...]], Array]  # noise of trials; the last axis is time
Family = Callable[[Random, int, int, int], Nights]  # generator, runs, cells, nights -> Nights


def together(
    node: Array, own: Array, trial: Trial, *, share: Array | float = 1.0, scale: float = 1.0, during: Trial | None = None
) -> Nights:
    """Node (runs, nights) shared by all, own (runs, cells, nights) each cell's, trial noise each trial's.

    `share` (runs, cells, 1): a cell's sensitivity to its node. `scale`: of trial noise on the judged nights. `during`: what a node does in
    the course of a night, to all trials of a round alike; pairs are measured at times of their own.
    """
    runs, cells, nights = own.shape
    level = share * node[:, None, :] + own
    wider = np.where(np.arange(nights) >= nights - JUDGED, scale, 1.0)[:, None]
    rounds = during((runs, nights, TRIALS)) if during else np.zeros((runs, nights, TRIALS))
    values = level[..., None] + wider * trial((runs, cells, nights, TRIALS)) + rounds[:, None]
    later = (runs, cells, JUDGED, 2 * PLANNED)
    turns = level[..., -JUDGED:, None] + scale * trial(later) + (during(later) if during else 0.0)
    canary = node[..., None] + wider * trial((runs, nights, TRIALS)) + rounds
    return Nights(values, canary, by_turns(turns), np.ones(cells, dtype=bool))


def by_turns(trials: NDArray[Any]) -> NDArray[Any]:
    """Trials in the order in which they ran (..., trials), A B B A, as pairs (..., pairs, 2) of A and B."""
    pairs = trials.reshape(*trials.shape[:-1], -1, 2).copy()
    pairs[..., 1::2, :] = pairs[..., 1::2, ::-1].copy()
    return pairs


def normal(random: Random, sd: float) -> Trial:
    return lambda shape: sd * random.normal(size=shape)


def calm(random: Random, runs: int, cells: int, nights: int, sd: float = 0.003) -> tuple[Array, Array]:
    """Node (runs, nights) and cells (runs, cells, nights) with nights `sd` apart."""
    return sd * random.normal(size=(runs, nights)), sd * random.normal(size=(runs, cells, nights))


def sensitivities(random: Random, runs: int, cells: int) -> Array:
    """(runs, cells, 1)"""
    return random.choice(SENSITIVITIES, size=(runs, cells, 1))


def quiet(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Nights 0.3 % apart, the node 0.3 %, trials 1 %."""
    return together(*calm(random, runs, cells, nights), normal(random, 0.01))


def drift(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """The node wanders by 0.3 % a night, each cell by 0.1 %; trials 1 %."""
    node = np.cumsum(0.003 * random.normal(size=(runs, nights)), axis=-1)
    own = np.cumsum(0.001 * random.normal(size=(runs, cells, nights)), axis=-1) + 0.002 * random.normal(size=(runs, cells, nights))
    return together(node, own, normal(random, 0.01))


def autocorrelated(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Nights follow each other (AR(1), 0.7, 0.8 % the node, 0.3 % a cell), and so do the trials of a night (0.5, 1 %)."""
    node = 0.008 * ar1(random.normal(size=(runs, nights)), 0.7)
    own = 0.003 * ar1(random.normal(size=(runs, cells, nights)), 0.7)
    return together(node, own, lambda shape: 0.01 * ar1(random.normal(size=shape), 0.5))


def outliers(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """One trial in twenty is slower, by 8 % on average (exponential); the rest has tails (t, 4 degrees of freedom, 0.8 %)."""

    def trial(shape: tuple[int, ...]) -> Array:
        return 0.008 * random.standard_t(4, size=shape) / np.sqrt(2) - (random.random(shape) < 0.05) * random.exponential(0.08, shape)

    return together(*calm(random, runs, cells, nights), trial)


def bimodal(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Two nodes, one 4 % slower than the other; a night lands on either. Nights 0.3 %, trials 1 %."""
    node, own = calm(random, runs, cells, nights)
    return together(node - 0.04 * (random.random((runs, nights)) < 0.5), own, normal(random, 0.01))


def swapped(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """From the first judged night on another node, on which the canary is 4 % slower or faster and each cell 2, 4 or 6 %; else quiet."""
    node, own = calm(random, runs, cells, nights)
    node[:, -JUDGED:] += random.choice([-0.04, 0.04], size=(runs, 1))
    return together(node, own, normal(random, 0.01), share=sensitivities(random, runs, cells))


def seasonal(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """The node follows a season, 3 % up and down within 40 nights, the cells by half, all and one and a half of it; else quiet."""
    node, own = calm(random, runs, cells, nights)
    phase = random.random((runs, 1))
    season = 0.03 * np.sin(2 * np.pi * (np.arange(nights) / 40 + phase))
    return together(node + season, own, normal(random, 0.01), share=sensitivities(random, runs, cells))


def tripled_variance(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Trials 1 % apart, and from the first judged night on 1.7 %."""
    return together(*calm(random, runs, cells, nights), normal(random, 0.01), scale=np.sqrt(3))


def tripled_spread(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Trials 1 % apart, and from the first judged night on 3 %."""
    return together(*calm(random, runs, cells, nights), normal(random, 0.01), scale=3.0)


def throttled(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """A node throttles in the course of a night: 4 % slower for six rounds on average, after eighteen that are not; else quiet."""
    return together(
        *calm(random, runs, cells, nights), normal(random, 0.01), during=lambda shape: -0.04 * spells(random, shape, 1 / 18, 1 / 6)
    )


def correlated(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """All cells, and not the canary, move together by 1 % a night; else quiet."""
    node, own = calm(random, runs, cells, nights)
    return together(node, own + 0.01 * random.normal(size=(runs, 1, nights)), normal(random, 0.01))


def hit(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """From the first judged night on something makes the first cell 5 % slower, all night, and neither canary nor others; else quiet."""
    node, own = calm(random, runs, cells, nights)
    own[:, 0, -JUDGED:] -= 0.05
    found = together(node, own, normal(random, 0.01))
    return Nights(found.cells, found.canary, found.pairs, np.arange(cells) == 0)


def missing(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """One past night in four was not measured, and one trial in ten failed; else quiet."""
    found = quiet(random, runs, cells, nights)
    gone = np.arange(nights) < nights - JUDGED
    found.canary[(random.random((runs, nights)) < 0.25) & gone] = np.nan
    lost = np.isnan(found.canary[..., 0])[:, None, :]
    found.cells[np.broadcast_to(lost, found.cells.shape[:3])] = np.nan
    found.cells[random.random(found.cells.shape) < 0.1] = np.nan
    return found


def rough(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Trials 2.5 % apart, nights 0.5 %, the node 0.5 %: more than the default budget is made for."""
    return together(*calm(random, runs, cells, nights, 0.005), normal(random, 0.025))


def recorded(random: Random, runs: int, cells: int, nights: int) -> Nights:
    """Nights of our own runs on a busy CPU (docs/results/nightly-cpu), drawn again in blocks of three nights, trials within a night too."""
    night = recorded_nights(RECORDING)
    starts = random.integers(0, night.nights, size=(runs, -(-nights // 3)))
    when = (starts[..., None] + np.arange(3)).reshape(runs, -1)[:, :nights] % night.nights
    kind = night.kind(random.integers(0, night.kinds, size=(runs, cells))[..., None], when[:, None])
    draw = random.random((runs, nights, TRIALS))
    values = night.cell(kind[..., None], when[:, None, :, None], draw[:, None])
    judged, at = kind[..., -JUDGED:, None, None], when[:, None, -JUDGED:, None, None]
    pairs = night.cell(judged, at, random.random((runs, cells, JUDGED, PLANNED, 2)))
    return Nights(values, night.canary(when[..., None], draw), pairs, np.ones(cells, dtype=bool))


def disturbed(nights: Nights, random: Random, rate: float) -> Nights:
    """The same nights, where a share `rate` of all trials is disturbed: other work comes and goes in spells of four trials of a cell on
    average, or of the canary, and makes each of them slower, by 8 % on average (exponential)."""

    def hit(shape: tuple[int, ...]) -> tuple[NDArray[np.bool_], Array]:
        mask = spells(random, shape, rate / (1 - rate) / _SPELL, 1 / _SPELL) > 0
        return mask, mask * random.exponential(0.08, shape)

    masks, slower = zip(*(hit(shape) for shape in (nights.cells.shape, nights.canary.shape)), strict=True)
    turns, slower_turns = hit((*nights.pairs.shape[:-2], 2 * nights.pairs.shape[-2]))
    return replace(
        nights,
        cells=nights.cells - slower[0],
        canary=nights.canary - slower[1],
        pairs=nights.pairs - by_turns(slower_turns),
        disturbed=Disturbed(*masks, by_turns(turns)),
    )


FAMILIES: dict[str, Family] = {
    "quiet": quiet,
    "drift": drift,
    "autocorrelated": autocorrelated,
    "outliers": outliers,
    "bimodal nodes": bimodal,
    "node swap": swapped,
    "seasonal": seasonal,
    "variance × 3": tripled_variance,
    "spread × 3": tripled_spread,
    "throttling": throttled,
    "correlated cells": correlated,
    "hit on one cell": hit,
    "missing nights": missing,
    "rough": rough,
    "recorded": recorded,
}


def ar1(noise: Array, coefficient: float) -> Array:
    """Along the last axis, with the noise's own variance."""
    values = noise.copy()
    scale = np.sqrt(1 - coefficient**2)
    for index in range(1, noise.shape[-1]):
        values[..., index] = coefficient * values[..., index - 1] + scale * noise[..., index]
    return values


def spells(random: Random, shape: tuple[int, ...], begin: float, end: float) -> Array:
    """1 in spells along the last axis, else 0: a Markov chain that begins one with chance `begin` a place and ends it with `end`."""
    draws = random.random(shape)
    state = draws[..., 0] < begin / (begin + end)
    values = np.zeros(shape)
    values[..., 0] = state
    for index in range(1, shape[-1]):
        state = np.where(state, draws[..., index] >= end, draws[..., index] < begin)
        values[..., index] = state
    return values
