"""Spikes of the loss and of RMS_t, and which of the first the second explain. Pure functions on series by step.

Definitions after Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models", appendix on loss spikes.
The paper does not say over what its running mean and deviation run; here it is the 100 steps before, the step itself left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Rule:
    """What a spike is. All but `rms` and `deviations` in steps."""

    after: int = 1000  # steps at the start that are not judged
    rms: float = 2.3  # an RMS_t of at least this is a spike
    deviations: float = 3.2  # a loss so many running standard deviations above its running mean deviates
    running: int = 100  # length of the running mean and deviation
    merge: int = 10  # what follows within so many steps is the same event
    several: int = 2  # a loss spike has at least so many deviating steps: one alone is noise
    lead: tuple[int, int] = (1, 8)  # an RMS spike explains a loss spike that follows so many steps later


@dataclass(frozen=True)
class Event:
    """Steps from the first to the last one that is beyond the limit, and how many of them are."""

    first: int
    last: int
    count: int


def rms_spikes(steps: ArrayLike, rms: ArrayLike, rule: Rule) -> list[Event]:
    """Events of RMS_t >= rule.rms beyond rule.after. `steps`, `rms`: (n,), step numbers rising; NaN where RMS_t is not known."""
    numbers, values = _series(steps, rms)
    with np.errstate(invalid="ignore"):
        return _events(numbers[(values >= rule.rms) & (numbers > rule.after)], rule.merge)


def loss_spikes(steps: ArrayLike, losses: ArrayLike, rule: Rule) -> list[Event]:
    """Events of at least rule.several losses above running mean + rule.deviations running standard deviations. `steps`, `losses`: (n,).

    The running figures are of the rule.running steps before each; a step with fewer before it is not judged.
    """
    numbers, values = _series(steps, losses)
    deviating = np.zeros(values.shape, bool)
    if values.size > rule.running:
        before = np.lib.stride_tricks.sliding_window_view(values, rule.running)[:-1]
        limit = before.mean(axis=1) + rule.deviations * before.std(axis=1)
        with np.errstate(invalid="ignore"):
            deviating[rule.running :] = values[rule.running :] > limit
    found = _events(numbers[deviating & (numbers > rule.after)], rule.merge)
    return [event for event in found if event.count >= rule.several]


def rise(steps: ArrayLike, losses: ArrayLike, event: Event, rule: Rule) -> float:
    """How far the largest loss of a loss spike is above the mean of the rule.running steps before its first."""
    numbers, values = _series(steps, losses)
    first, last = np.searchsorted(numbers, (event.first, event.last))
    return float(np.nanmax(values[first : last + 1]) - values[first - rule.running : first].mean())


def explained(loss: Sequence[Event], rms: Sequence[Event], rule: Rule) -> list[Event]:
    """The loss spikes that begin rule.lead steps after an RMS spike began."""
    low, high = rule.lead
    return [event for event in loss if any(low <= event.first - cause.first <= high for cause in rms)]


def by_chance(steps: ArrayLike, rms: Sequence[Event], rule: Rule) -> float:
    """The share of the judged steps that lie rule.lead after an RMS spike: how likely a loss spike anywhere would seem explained."""
    numbers = np.asarray(steps, dtype=np.int64)
    judged = numbers[numbers > rule.after]
    if not judged.size:
        return 0.0
    low, high = rule.lead
    covered = np.zeros(judged.shape, bool)
    for event in rms:
        covered |= (judged >= event.first + low) & (judged <= event.first + high)
    return float(covered.mean())


def accident(spikes: int, found: int, share: float) -> float | None:
    """Chance that at least `found` of `spikes` loss spikes at independent places seem explained, where each does with chance `share`."""
    if not spikes:
        return None
    return math.fsum(math.comb(spikes, hits) * share**hits * (1 - share) ** (spikes - hits) for hits in range(found, spikes + 1))


def _series(steps: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    numbers, series = np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64)
    if numbers.shape != series.shape or numbers.ndim != 1:
        raise ValueError(f"{numbers.shape} step numbers and {series.shape} values are no series")
    return numbers, series


def _events(found: NDArray[np.int64], merge: int) -> list[Event]:
    """Steps in rising order, put together where the next is at most `merge` steps on."""
    if not found.size:
        return []
    parts = np.split(found, np.flatnonzero(np.diff(found) > merge) + 1)
    return [Event(int(part[0]), int(part[-1]), int(part.size)) for part in parts]


@dataclass(frozen=True)
class LossSpikes:
    """The spikes of one trial. `tensors`: the RMS spikes of each tensor, in the order in which they were asked for."""

    rule: Rule
    loss: Sequence[Event]
    tensors: Mapping[str, Sequence[Event]]
    chance: Mapping[str, float]  # see `by_chance`

    def explained(self, tensor: str) -> list[Event]:
        """The loss spikes that this tensor's RMS spikes explain."""
        return explained(self.loss, self.tensors[tensor], self.rule)

    def accident(self, tensor: str) -> float | None:
        """See `accident`."""
        return accident(len(self.loss), len(self.explained(tensor)), self.chance[tensor])


def find_spikes(steps: ArrayLike, losses: ArrayLike, rms: Mapping[str, ArrayLike], rule: Rule) -> LossSpikes:
    """All spikes of one trial. `steps`, `losses` and each of `rms`: (n,)."""
    tensors = {name: rms_spikes(steps, values, rule) for name, values in rms.items()}
    return LossSpikes(
        rule, loss_spikes(steps, losses, rule), tensors, {name: by_chance(steps, found, rule) for name, found in tensors.items()}
    )
