"""The loss-parity test: whether a candidate's loss curves are those of its reference. It fails closed: what is not shown is unproven."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from experiments.parameters import REFERENCE_SEEDS as SEEDS

# Largest relative difference of the loss that counts as equal. DeepSeek-V3 reports fp8 within 0.25 % of bf16 over whole trainings
# (arXiv 2412.19437, section 3.3). Twice that: ours are short windows
MARGIN = 0.005
TARGET = 0.01  # the divergence that a comparison should find
STRIKE_LEVEL = 0.01  # chance that a candidate that differs in nothing is struck
PROOF_LEVEL = 0.05  # of each of the two one-sided tests, so the chance that a difference of MARGIN passes as equal
POWER = 0.9  # with which the smallest divergence would have been found
MINIMUM_STEPS = 100  # of a training, before anything is proven: from one start all trainings are equal at first
LEARNT = 0.02  # share of its loss that the reference must have lost: what learns nothing is equal to everything
_FEWEST = 8  # steps in common, at least
_MOST_STEPS = 1_000_000  # no longer training is recommended
_BLOCKS = 8  # of which the variance over steps is made
_DRAWN = 16  # blocks of the curve that a figure shows

Array = NDArray[np.float64]


class ParityStatus(StrEnum):
    """Proven: equal within the margin. Struck: it differs. Unproven: neither is shown."""

    PROVEN = "proven"
    STRUCK = "struck"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class Parity:
    """The result of `loss_parity`. Differences are relative to the reference's loss, positive where the candidate's is higher.

    `difference` with `low` and `high`, its 90 % interval, is of the second half of the `steps` in common. `smallest`: the smallest
    divergence that would have been struck with a probability of 90 %; `recommended`: steps at which that would be 1 %. Each is None where
    it is not known, `recommended` also where no number of steps would do, only more seeds. `bound`: the difference from which it is struck,
    the band's half-width. `left_at`: the step (1-based) from which the difference stays above MARGIN, or at which the loss is not finite.
    `fell_to`: the reference's loss in the judged half, as a share of that of its first steps (a twentieth of them, at least one).
    `ends` (blocks,) are the last steps of blocks of the curve, `curve` (blocks,) the difference in each.
    """

    status: ParityStatus
    why: str = ""  # why it is unproven
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    smallest: float | None = None
    recommended: int | None = None
    steps: int = 0
    pairs: int = 0  # seeds that the candidate shares with the reference
    seeds: int = 0  # of the reference
    left_at: int | None = None
    fell_to: float | None = None
    ends: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    curve: Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class _Difference:
    """The mean relative difference over a range of steps, its standard error, and the part of the error that steps alone make."""

    mean: float
    se: float
    df: float
    step_se: float
    step_df: float

    @property
    def bound(self) -> float:
        """What is struck: more than MARGIN, and more than a candidate that differs in nothing reaches with a chance of STRIKE_LEVEL."""
        return _bound(self.se, self.df)

    @property
    def smallest(self) -> float:
        """What is struck with a probability of POWER, were the true standard error as large as it can be with 95 % confidence."""
        return _smallest(self.se, self.df)

    @property
    def interval(self) -> tuple[float, float]:
        half = _t(1 - PROOF_LEVEL, self.df) * self.se
        return self.mean - half, self.mean + half


def loss_parity(candidate: Mapping[int, ArrayLike], reference: Mapping[int, ArrayLike], *, trains: bool = True) -> Parity:
    """Compare the candidate's curves with the reference's, both by seed: losses by step (n,), of equal seed from equal weights and batches.
    Infinite is a loss that was recorded and is not finite, NaN one that was not recorded: it may be any, so nothing is shown.

    Judged is the mean relative difference d between curves of equal seed over the second half of the steps that all have in common. With
    three or more pairs of equal seed its standard error is that of the pairs, with pairs - 1 degrees of freedom. It holds whatever differs
    from training to training, autocorrelated or growing. With fewer pairs that cannot be seen in the pairs: then the spread s between the
    reference's seeds bounds it, since two trainings that share weights and batches are no further apart than two that share neither:
    se^2 = 2 s^2 / pairs + v, with v the variance of d over its steps from the means of 8 blocks, and Satterthwaite's degrees of freedom.
    Without training (`trains` false) nothing grows: v alone counts, and one seed is enough. Proven are then the sizes of the differences,
    not their mean: another output is higher at one batch and lower at the next, so that a long enough mean would prove any.

    - Struck: |d| exceeds MARGIN and t(0.995) se, so that a candidate that differs in nothing is struck with a probability of at most 1 %;
      or a loss is infinite where the references' are finite.
    - Proven: the two one-sided tests of Schuirmann (1987) at 5 % find |d| below MARGIN, in each half of the judged steps by itself, so that
      a difference that still grows does not pass. Of a training also: MINIMUM_STEPS steps, SEEDS references, and the reference has learnt.
    - Else unproven, and `why`.

    Raises ValueError for a reference that is infinite.
    """
    pairs = sorted(candidate.keys() & reference.keys())
    if not pairs:
        return Parity(ParityStatus.UNPROVEN, "no seed in common with the reference", seeds=len(reference))
    curves = {seed: np.asarray(curve, dtype=float) for seed, curve in candidate.items() if seed in pairs}
    references = {seed: np.asarray(curve, dtype=float) for seed, curve in reference.items()}
    n = min(curve.size for curve in (*curves.values(), *references.values()))
    if any(np.isinf(curve[:n]).any() for curve in references.values()):
        raise ValueError("the reference's loss is not finite")
    counts: dict[str, Any] = {"steps": n, "pairs": len(pairs), "seeds": len(references)}
    known = np.all([np.isfinite(curve[:n]) for curve in references.values()], axis=0)
    broken = [int(at[0]) for curve in curves.values() if (at := np.flatnonzero(np.isinf(curve[:n]) & known)).size]
    if broken:
        return Parity(ParityStatus.STRUCK, difference=math.inf, left_at=min(broken) + 1, **counts)
    if not known.all() or not all(np.isfinite(curve[:n]).all() for curve in curves.values()):
        return Parity(ParityStatus.UNPROVEN, "some losses were not recorded", **counts)
    if too_few := _too_few(n, len(references), trains=trains):
        return Parity(ParityStatus.UNPROVEN, too_few, **counts)
    theirs = np.array([references[seed][:n] for seed in (*pairs, *(seed for seed in references if seed not in pairs))])
    ours = np.array([curves[seed][:n] for seed in pairs])
    if not np.abs(theirs.mean(1)).min() > 0:
        return Parity(ParityStatus.UNPROVEN, "the reference's loss is 0: nothing is relative to it", **counts)
    return _judged(ours, theirs, trains=trains, counts=counts)


def _too_few(steps: int, seeds: int, *, trains: bool) -> str:
    """What there is too little of to judge curves at all; empty where there is enough."""
    if steps < _FEWEST:
        return f"{steps} steps in common are too few to judge a loss curve"
    return f"{seeds} of {SEEDS} seeds of the reference" if trains and seeds < SEEDS else ""


def _judged(ours: Array, theirs: Array, *, trains: bool, counts: dict[str, Any]) -> Parity:
    """`ours` (pairs, n) with `theirs` (seeds, n), of which the first are of the same seeds."""
    n = ours.shape[1]
    found = _difference(ours, theirs, slice(n // 2, n), trains=trains)
    struck = abs(found.mean) > found.bound
    why = "" if struck else _why_not(ours, theirs, trains=trains)
    status = ParityStatus.STRUCK if struck else ParityStatus.UNPROVEN if why else ParityStatus.PROVEN
    low, high = found.interval
    first, judged = _first_and_judged(theirs)
    ends, curve = _blocks_of(ours, theirs)
    return Parity(
        status,
        why,
        found.mean,
        low,
        high,
        found.bound,
        found.smallest,
        _recommended(found, n, trains=trains) if len(ours) >= SEEDS or not trains else None,
        left_at=_left_at(ends, curve) if struck else None,
        fell_to=judged / first if first else None,
        ends=ends,
        curve=curve,
        **counts,
    )


def _why_not(ours: Array, theirs: Array, *, trains: bool) -> str:
    """Why equality is not proven; empty if it is."""
    n = ours.shape[1]
    if trains and n < MINIMUM_STEPS:
        return f"{n} steps are too few"
    first, judged = _first_and_judged(theirs)
    if trains and not first - judged >= LEARNT * abs(first):
        return "the reference has not learnt: its loss fell by less than 2 %"
    quarter = (n + n // 2) // 2
    judged_parts = (slice(n // 2, n), slice(n // 2, quarter), slice(quarter, n))
    parts = [_difference(ours, theirs, part, trains=trains, sizes=not trains) for part in judged_parts]
    if all(part.interval[0] > -MARGIN and part.interval[1] < MARGIN for part in parts):
        return ""
    return "its difference is not known well enough" if trains else _too_large(parts[0].mean)


def _too_large(size: float) -> str:
    """Why sizes with this mean, above MARGIN or near it, prove nothing: of those above it, no number of batches would."""
    limit = f"{100 * MARGIN:.2g} %"
    more = f"and no more than {limit} counts as equal" if size >= MARGIN else f"too near the {limit} that counts as equal: more may show it"
    return f"its losses differ by {100 * size:.3g} % a batch, up or down, {more}"


def _first_and_judged(theirs: Array) -> tuple[float, float]:
    """Mean loss of the first twentieth of the steps, at least of one, and of the judged half."""
    n = theirs.shape[1]
    return float(theirs[:, : max(1, n // 20)].mean()), float(theirs[:, n // 2 :].mean())


def _difference(ours: Array, theirs: Array, part: slice, *, trains: bool, sizes: bool = False) -> _Difference:
    """The mean relative difference over some steps, with `sizes` the mean of its size: see `loss_parity`."""
    pairs, level = len(ours), theirs[:, part].mean(1)
    steps = (ours[:, part] - theirs[:pairs, part]) / np.abs(level[:pairs, None])
    if sizes:
        steps = np.abs(steps)
    each = steps.mean(1)
    step_se, step_df = math.sqrt(sum(map(_step_variance, steps))) / pairs, (_BLOCKS - 1) * pairs
    if not trains:
        return _Difference(float(each.mean()), step_se, step_df, step_se, step_df)
    if pairs >= SEEDS:
        return _Difference(float(each.mean()), float(each.std(ddof=1)) / math.sqrt(pairs), pairs - 1, step_se, step_df)
    between = 2 / pairs * float(np.var(level, ddof=1)) / float(level.mean()) ** 2
    total = between + step_se**2
    df = total**2 / (between**2 / (len(theirs) - 1) + step_se**4 / step_df) if total > 0 else len(theirs) - 1
    return _Difference(float(each.mean()), math.sqrt(total), df, step_se, step_df)


def _step_variance(series: Array) -> float:
    """Variance of the mean of an autocorrelated series (n,): from the means of 8 blocks (batch means), or what an autoregression of first
    order gives where that is more, since blocks of a short series follow each other too. 0 for fewer than two steps."""
    if series.size < 2:
        return 0.0
    blocks = np.array([block.mean() for block in np.array_split(series, min(_BLOCKS, series.size))])
    apart = series - series.mean()
    power = float((apart**2).mean())
    if not power > 0:
        return 0.0
    rho = float((apart[1:] * apart[:-1]).sum() / (apart**2).sum())
    rho = min(0.99, rho + (1 + 3 * rho) / series.size)  # its bias in short series (Kendall 1954)
    return max(float(np.var(blocks, ddof=1)) / blocks.size, power / series.size * (1 + rho) / (1 - rho))


def _bound(se: float, df: float) -> float:
    """See `_Difference.bound`."""
    return max(MARGIN, _t(1 - STRIKE_LEVEL / 2, df) * se)


def _smallest(se: float, df: float) -> float:
    """See `_Difference.smallest`."""
    return _bound(se, df) + float(special.ndtri(POWER)) * se * math.sqrt(df / float(special.chdtri(df, 0.95)))


def _recommended(found: _Difference, n: int, *, trains: bool) -> int | None:
    """Steps at which a divergence of TARGET would be found; None where more steps would not do.

    The part of the error that steps make falls with their number. It is taken at its upper 90 % limit, so that a lucky short run does not
    recommend another too short. What is left of the error stays.
    """
    steps = found.step_se**2 * found.step_df / float(special.chdtri(found.step_df, 0.9))
    rest = max(0.0, found.se**2 - found.step_se**2)

    def enough(length: float) -> bool:
        return _smallest(math.sqrt(rest + steps * n / length), found.df) <= TARGET

    if not enough(_MOST_STEPS):
        return None
    low, high = 1.0, float(_MOST_STEPS)
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(MINIMUM_STEPS if trains else _FEWEST, math.ceil(high))


def _blocks_of(ours: Array, theirs: Array) -> tuple[NDArray[np.int64], Array]:
    """(last steps, mean relative differences) of blocks of the whole curve, a sixteenth of it each."""
    n, pairs = ours.shape[1], len(ours)
    edges = np.linspace(0, n, min(_DRAWN, n // 4) + 1).round().astype(np.int64)
    sums = [np.add.reduceat(curves, edges[:-1], axis=1) for curves in (ours, theirs[:pairs])]
    return edges[1:], ((sums[0] - sums[1]) / np.abs(sums[1])).mean(0)


def _left_at(ends: NDArray[np.int64], curve: Array) -> int:
    """First step of the first block from which the difference stays above MARGIN; of the judged half where it does in no last block."""
    inside = np.flatnonzero(np.abs(curve) <= MARGIN)
    first = int(inside[-1]) + 1 if inside.size else 0
    if first >= ends.size:
        return int(ends[-1]) // 2 + 1
    return int(ends[first - 1]) + 1 if first else 1


def _t(probability: float, df: float) -> float:
    return float(special.stdtrit(df, probability))
