"""Spikes of the loss and of RMS_t (cluster/worker/train/rms.py), and which loss spikes follow an RMS spike.

Definitions from Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models", appendix on loss spikes.
The paper does not define the length of its running mean and deviation; here it is the 100 steps before a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_KNOWN = 0.5  # least share of known losses in a window: of 50 losses a standard deviation is uncertain by 10 %, of 100 by 7 %


@dataclass(frozen=True)
class Rule:
    """The definition of a spike. All fields but `rms` and `deviations` are in steps."""

    after: int = 1000  # steps at the start that are ignored
    rms: float = 2.3  # an RMS_t of at least this is a spike
    deviations: float = 3.2  # a loss deviates if it is this many running standard deviations above the running mean
    running: int = 100  # length of the running mean and deviation
    merge: int = 10  # deviations at most this many steps apart belong to one event
    several: int = 2  # a loss spike has at least this many deviating steps: a single one is noise
    lead: tuple[int, int] = (1, 8)  # an RMS spike explains a loss spike that begins this many steps later (least, most)


@dataclass(frozen=True)
class Event:
    """First and last step beyond the limit, and the number of steps between them that are beyond it."""

    first: int
    last: int
    count: int


def rms_spikes(steps: ArrayLike, rms: ArrayLike, rule: Rule) -> list[Event]:
    """Events of RMS_t >= rule.rms after step rule.after. `steps`, `rms`: (n,), step numbers rising; NaN or infinite where unknown."""
    numbers, values = _series(steps, rms)
    with np.errstate(invalid="ignore"):
        return _events(numbers[np.isfinite(values) & (values >= rule.rms) & (numbers > rule.after)], rule.merge)


def loss_spikes(steps: ArrayLike, losses: ArrayLike, rule: Rule) -> list[Event]:
    """Events of at least rule.several losses above running mean + rule.deviations * running standard deviation. `steps`, `losses`: (n,).

    Mean and deviation are those of the rule.running steps before a step. Steps with fewer predecessors are ignored. A loss is NaN where it
    is unknown; an infinite one deviates. Both are left out of mean and deviation: see `all_judged`.
    """
    numbers, values = _series(steps, losses)
    deviating = np.zeros(values.shape, bool)
    with np.errstate(invalid="ignore"):
        deviating[rule.running :] = (values[rule.running :] > _limits(values, rule)) | np.isposinf(values[rule.running :])
    events = _events(numbers[deviating & (numbers > rule.after)], rule.merge)
    return [event for event in events if event.count >= rule.several]


def all_judged(steps: ArrayLike, losses: ArrayLike, rule: Rule) -> bool:
    """False if fewer than half of the losses before some step are known: whether it deviates is then unknown, and so is their number.

    `steps`, `losses`: (n,), as for `loss_spikes`. Steps that the rule leaves out are not meant.
    """
    numbers, values = _series(steps, losses)
    unknown = np.isnan(_limits(values, rule)) & ~np.isposinf(values[rule.running :])
    return not bool((unknown & (numbers[rule.running :] > rule.after)).any())


def rise(steps: ArrayLike, losses: ArrayLike, event: Event, rule: Rule) -> float:
    """Largest loss of a loss spike less the mean loss of the rule.running steps before it. `steps`, `losses`: (n,).

    The mean is of the losses that are known and finite; the rise is infinite if a loss of the spike is.
    """
    numbers, values = _series(steps, losses)
    first, last = np.searchsorted(numbers, (event.first, event.last))
    highest = float(np.nanmax(values[first : last + 1]))
    if math.isinf(highest):
        return highest
    before = values[first - rule.running : first]
    return highest - float(before[np.isfinite(before)].mean())


def explained(loss: Sequence[Event], rms: Sequence[Event], rule: Rule) -> list[Event]:
    """The loss spikes that begin rule.lead steps after the beginning of an RMS spike."""
    low, high = rule.lead
    return [event for event in loss if any(low <= event.first - cause.first <= high for cause in rms)]


def by_chance(steps: ArrayLike, rms: Sequence[Event], rule: Rule) -> float:
    """Share (0 to 1) of the steps after rule.after that lie rule.lead steps after an RMS spike.

    It is the probability that a loss spike at a random step seems explained.
    """
    numbers = np.asarray(steps, dtype=np.int64)
    considered = numbers[numbers > rule.after]
    if not considered.size:
        return 0.0
    low, high = rule.lead
    covered = np.zeros(considered.shape, bool)
    for event in rms:
        covered |= (considered >= event.first + low) & (considered <= event.first + high)
    return float(covered.mean())


def accident(spikes: int, explained_spikes: int, share: float) -> float | None:
    """Probability that at least `explained_spikes` of `spikes` loss spikes at random steps seem explained (binomial); None without spikes.

    `share`: the probability for each of them, see `by_chance`.
    """
    if not spikes:
        return None
    return math.fsum(math.comb(spikes, hits) * share**hits * (1 - share) ** (spikes - hits) for hits in range(explained_spikes, spikes + 1))


def _series(steps: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    numbers, series = np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64)
    if numbers.shape != series.shape or numbers.ndim != 1:
        raise ValueError(f"{numbers.shape} step numbers and {series.shape} values are no series")
    return numbers, series


def _limits(losses: NDArray[np.float64], rule: Rule) -> NDArray[np.float64]:
    """The loss above which each step from rule.running on deviates, (n - running,); NaN where too few losses before it are known."""
    if losses.size <= rule.running:
        return np.empty(0)
    finite = np.where(np.isfinite(losses), losses, np.nan)
    before = np.lib.stride_tricks.sliding_window_view(finite, rule.running)[:-1]
    limits: NDArray[np.float64] = before.mean(axis=1) + rule.deviations * before.std(axis=1)
    known = np.isfinite(before).sum(axis=1)
    for at in np.flatnonzero((known < rule.running) & (known >= _KNOWN * rule.running)):
        losses_there = before[at][np.isfinite(before[at])]
        limits[at] = losses_there.mean() + rule.deviations * losses_there.std()
    return limits


def _events(steps: NDArray[np.int64], merge: int) -> list[Event]:
    """Group steps (n,), in rising order: steps at most `merge` apart form one event."""
    if not steps.size:
        return []
    parts = np.split(steps, np.flatnonzero(np.diff(steps) > merge) + 1)
    return [Event(int(part[0]), int(part[-1]), int(part.size)) for part in parts]


@dataclass(frozen=True)
class LossSpikes:
    """The spikes of one trial. `tensors`: the RMS spikes by tensor, in the order in which the trial names them."""

    rule: Rule
    loss: Sequence[Event]
    tensors: Mapping[str, Sequence[Event]]
    chance: Mapping[str, float]  # see `by_chance`
    judged: bool  # False if the number of loss spikes is unknown, see `all_judged`

    def explained(self, tensor: str) -> list[Event]:
        """The loss spikes that this tensor's RMS spikes explain."""
        return explained(self.loss, self.tensors[tensor], self.rule)

    def accident(self, tensor: str) -> float | None:
        """The probability that as many loss spikes seem explained by chance, see the function `accident`; None if that many is unknown."""
        return None if not self.judged else accident(len(self.loss), len(self.explained(tensor)), self.chance[tensor])


def find_spikes(steps: ArrayLike, losses: ArrayLike, rms: Mapping[str, ArrayLike], rule: Rule) -> LossSpikes:
    """All spikes of one trial. `steps`, `losses` and each of `rms`: (n,)."""
    tensors = {name: rms_spikes(steps, values, rule) for name, values in rms.items()}
    chance = {name: by_chance(steps, spikes, rule) for name, spikes in tensors.items()}
    return LossSpikes(rule, loss_spikes(steps, losses, rule), tensors, chance, all_judged(steps, losses, rule))
