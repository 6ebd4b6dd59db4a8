"""Realistic noise of nights: log values of eight cells and a canary on one node, trial by trial. Simulated, but for `recorded`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

Array = NDArray[np.float64]

CELLS = 8
TRIALS = 8  # a night: as many as the last look takes
ROUNDS = 2  # of a recorded night
RECORDED = Path(__file__).resolve().parents[1] / "docs" / "results" / "nightly-cpu" / "steps.parquet"


@dataclass(frozen=True)
class Nights:
    """Log values where more is better: cells (runs, cells, nights, trials) and the canary (runs, nights, trials); tonight is the last."""

    cells: Array
    canary: Array


Family = Callable[[np.random.Generator, int, int], Nights]  # generator, runs, nights -> Nights


def _together(random: np.random.Generator, node: Array, own: Array, trial: Callable[[tuple[int, ...]], Array]) -> Nights:
    """Node (runs, nights) shared by all, own (runs, cells, nights) each cell's, trial noise each trial's."""
    runs, cells, nights = own.shape
    values = (node[:, None, :] + own)[..., None] + trial((runs, cells, nights, TRIALS))
    return Nights(values, node[..., None] + trial((runs, nights, TRIALS)))


def quiet(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """Nights 0.3 % apart, the node 0.3 %, trials 1 %."""
    node, own = 0.003 * random.normal(size=(runs, nights)), 0.003 * random.normal(size=(runs, CELLS, nights))
    return _together(random, node, own, lambda shape: 0.01 * random.normal(size=shape))


def drift(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """The node wanders by 0.3 % a night, each cell by 0.1 %; trials 1 %."""
    node = np.cumsum(0.003 * random.normal(size=(runs, nights)), axis=-1)
    own = np.cumsum(0.001 * random.normal(size=(runs, CELLS, nights)), axis=-1) + 0.002 * random.normal(size=(runs, CELLS, nights))
    return _together(random, node, own, lambda shape: 0.01 * random.normal(size=shape))


def autocorrelated(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """Nights follow each other (AR(1), 0.7, 0.8 % the node, 0.3 % a cell), and so do the trials of a night (0.5, 1 %)."""
    node = 0.008 * _ar1(random.normal(size=(runs, nights)), 0.7)
    own = 0.003 * _ar1(random.normal(size=(runs, CELLS, nights)), 0.7)
    return _together(random, node, own, lambda shape: 0.01 * _ar1(random.normal(size=shape), 0.5))


def outliers(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """One trial in twenty is slower, by 8 % on average (exponential); the rest has tails (t, 4 degrees of freedom, 0.8 %)."""
    node, own = 0.003 * random.normal(size=(runs, nights)), 0.003 * random.normal(size=(runs, CELLS, nights))

    def trial(shape: tuple[int, ...]) -> Array:
        return 0.008 * random.standard_t(4, size=shape) / np.sqrt(2) - (random.random(shape) < 0.05) * random.exponential(0.08, shape)

    return _together(random, node, own, trial)


def bimodal(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """Two nodes, one 4 % slower than the other; a night lands on either. Nights 0.3 %, trials 1 %."""
    node = -0.04 * (random.random((runs, nights)) < 0.5) + 0.002 * random.normal(size=(runs, nights))
    own = 0.003 * random.normal(size=(runs, CELLS, nights))
    return _together(random, node, own, lambda shape: 0.01 * random.normal(size=shape))


def rough(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """Trials 2.5 % apart, nights 0.5 %, the node 0.5 %: more than the default budget is made for."""
    node, own = 0.005 * random.normal(size=(runs, nights)), 0.005 * random.normal(size=(runs, CELLS, nights))
    return _together(random, node, own, lambda shape: 0.025 * random.normal(size=shape))


def recorded(random: np.random.Generator, runs: int, nights: int) -> Nights:
    """Nights of our own runs on a busy CPU (docs/results/nightly-cpu), drawn again in blocks of three nights, trials within a night too."""
    cells, canary = _recorded()
    kinds, known, rounds = cells.shape
    starts = random.integers(0, known, size=(runs, -(-nights // 3)))
    night = (starts[..., None] + np.arange(3)).reshape(runs, -1)[:, :nights] % known
    kind = random.integers(0, kinds, size=(runs, CELLS))
    trial = random.integers(0, rounds, size=(runs, nights, TRIALS))
    mine = cells[kind[:, :, None, None], night[:, None, :, None], trial[:, None]]
    return Nights(mine, canary[night[:, :, None], trial])


FAMILIES: dict[str, Family] = {
    "quiet": quiet,
    "drift": drift,
    "autocorrelated": autocorrelated,
    "outliers": outliers,
    "bimodal nodes": bimodal,
    "rough": rough,
    "recorded": recorded,
}


def _ar1(noise: Array, coefficient: float) -> Array:
    """Along the last axis, with the noise's own variance."""
    values = noise.copy()
    scale = np.sqrt(1 - coefficient**2)
    for index in range(1, noise.shape[-1]):
        values[..., index] = coefficient * values[..., index - 1] + scale * noise[..., index]
    return values


def _recorded() -> tuple[Array, Array]:
    """Log values around each cell's own level, (cells, nights, rounds) and (nights, rounds): 5th percentile of each trial's steps.

    Two rounds a night, since every night has those. A trial drawn from so few varies less than trials do, by (k - 1) / k; they are
    spread around their night's mean to make up for it.
    """
    table = pq.read_table(RECORDED).to_pandas()
    value = -np.log(table.groupby(["suite", "width", "role", "date", "round"], observed=True).step_us.quantile(0.05))
    wide = value[value.index.get_level_values("round") <= ROUNDS].unstack(["date", "round"]).sort_index(axis=1)
    wide = wide.loc[[role != "injected" for *_, role in wide.index]]
    gaps = wide.isna().any().groupby(level="date", observed=True).any()
    wide = wide.loc[:, [not gaps[date] for date, _ in wide.columns]]
    cells, canary = [], None
    for (_, _, role), row in wide.iterrows():
        nights = row.to_numpy().reshape(-1, ROUNDS)
        nights = nights.mean(-1, keepdims=True) + (nights - nights.mean(-1, keepdims=True)) * np.sqrt(ROUNDS / (ROUNDS - 1))
        level = np.median(nights, axis=-1)
        jump = _level_change(level) if role == "history" else level.size  # a planted change is another level
        around = np.where(np.arange(level.size) < jump, np.median(level[:jump]), np.median(level[jump:]) if jump < level.size else 0.0)
        if role == "canary":
            canary = nights - around[:, None]
        else:
            cells.append(nights - around[:, None])
    assert canary is not None
    return np.stack(cells), canary


def _level_change(level: Array) -> int:
    """Where one step explains most of a series, if it is as large as 4 %; else its end."""
    costs = [level[:cut].var() * cut + level[cut:].var() * (level.size - cut) for cut in range(3, level.size - 2)]
    cut = int(np.argmin(costs)) + 3
    return cut if abs(np.median(level[:cut]) - np.median(level[cut:])) > 0.04 else level.size
