"""Significance levels of repeated looks at one comparison, so that all looks together have the chance of error that one test has.

Two ways to add up. `interim_levels`: levels whose sum is the chance, whatever the dependence between looks; for a few planned looks of a
night. `look_levels`: levels that allow for what looks share, as each holds the trials of those before; for a look after every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy import special

from experiments.stats.estimate import Array
from experiments.stats.interim_looks import KEPT, Look
from experiments.stats.root import root

SHAPE = 2.0  # power of the share of rounds that a look's spending follows; benchmarks/bench_sequential.py compares some
_POINTS = 401  # of the grid on which the sum's density is followed


def interim_levels(repeats: Sequence[int], alpha: float) -> list[float]:
    """The significance level of each interim analysis, made after so many repeats; their sum is `alpha`.

    A level is what O'Brien and Fleming's boundary has spent by then (Lan & DeMets 1983), less what it had spent before. The levels add up,
    so the bound holds whatever the dependence between the analyses; nearly all of `alpha` is left for the last one.
    Raises ValueError for repeats that do not rise, or none.
    """
    if not repeats or any(b <= a for a, b in pairwise(repeats)) or repeats[0] < 1:
        raise ValueError(f"interim analyses need rising numbers of repeats, got {list(repeats)}")
    z = special.ndtri(1 - alpha / 2)
    spent = [float(2 * special.ndtr(-z / np.sqrt(count / repeats[-1]))) for count in repeats]
    return [now - before for now, before in zip(spent, [0.0, *spent[:-1]], strict=True)]


def next_look(before: Sequence[Look], at: int, last: int) -> Look:
    """The look after round `at`, where round `last` is the last for which there is time.

    The share spent rises with the square of the share of rounds that are done (power family: Kim & DeMets 1987, Biometrika 74(1)), to all
    but KEPT of the chance at the last round. Rounds beyond that, as a larger budget adds them, spend all but KEPT of what was kept; so no
    budget spends it all. What will fit may be said anew at every look: time enters it, not what the looks found (Lan & DeMets 1983).
    Raises ValueError for a look that is not after the one before, or after `last`.
    """
    begun, base = 0, 0.0  # of the stage: the rounds to which the share `total` belongs
    spent, total = (before[-1].spent if before else 0.0), 1 - KEPT
    while spent >= total and total < 1:  # powers of KEPT: without rounding, until what is left is none
        base, total = total, total + (1 - KEPT) * (1 - total)
        begun = next(look.round for look in before if look.spent >= base)
    if at > last or (before and at <= before[-1].round) or at < 1:
        raise ValueError(f"a look after round {at} of {last} does not follow {[look.round for look in before]}")
    done = (at - begun) / (last - begun)
    return Look(round=at, spent=max(spent, base + (total - base) * done**SHAPE))


def look_levels(looks: Sequence[Look], chance: float) -> list[float]:
    """The two-sided significance level of each look, so that at least one of them errs with probability `spent` * `chance` by each.

    For the standardised sum of independent normal trials, as many in each round (Armitage, McPherson & Rowe 1969, JRSS A 132(2); with
    spending Lan & DeMets 1983, Biometrika 70(3)). t statistics are held to the same levels (Jennison & Turnbull 2000, section 11.3), which
    benchmarks/bench_sequential.py checks with the spreads and few trials that sweeps have.
    """
    return list(_levels(tuple(look.round for look in looks), tuple(look.spent for look in looks), chance))


@lru_cache(maxsize=64)
def _levels(rounds: tuple[int, ...], spent: tuple[float, ...], chance: float) -> tuple[float, ...]:
    levels: list[float] = []
    before: tuple[Array, Array] | None = None  # the sum where no look has erred: points, and the probability at each
    for place, (at, share) in enumerate(zip(rounds, spent, strict=True)):
        more = chance * (share - (spent[place - 1] if place else 0.0))
        sd = np.sqrt(at - (rounds[place - 1] if place else 0))
        points, weights = before or (np.zeros(1), np.ones(1))

        def excess(z: float, at: int = at, sd: float = sd, points: Array = points, weights: Array = weights, more: float = more) -> float:
            edge = z * np.sqrt(at)
            outside = float(weights @ (special.ndtr((-edge - points) / sd) + special.ndtr((points - edge) / sd)))
            return outside - more

        z = root(excess, 0.0, 40.0) if more > 1e-15 else np.inf
        levels.append(float(2 * special.ndtr(-z)))
        edge = min(z, 12.0) * np.sqrt(at)
        grid = np.linspace(-edge, edge, _POINTS)
        density = np.exp(-(((grid[:, None] - points) / sd) ** 2) / 2) @ weights / (sd * np.sqrt(2 * np.pi))
        width = np.full(_POINTS, grid[1] - grid[0])
        width[[0, -1]] /= 2
        before = grid, density * width
    return tuple(levels)
