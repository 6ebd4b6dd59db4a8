"""From what rates show of more and more loader processes or threads: how many are enough, and how many devices they feed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.stats.estimate import Estimate
from experiments.stats.repeats import paired_ratio

LEAST = 0.05  # what the next number has to add
TOO_WIDE = 100.0  # upper over lower end of an interval, from which on its ends say nothing


@dataclass(frozen=True)
class Step:
    """From one number of workers to the next that was measured; `gain`: the ratio of their rates, with its 95 % interval."""

    workers: int
    following: int
    gain: Estimate

    @property
    def adds(self) -> bool:
        """Whether the next number adds at least LEAST, by the estimate."""
        return self.gain.value >= 1 + LEAST

    @property
    def certain(self) -> bool:
        """Whether the whole interval is on the estimate's side of LEAST."""
        return self.gain.low >= 1 + LEAST if self.adds else self.gain.high < 1 + LEAST


def steps(rates: Mapping[int, Sequence[float]]) -> list[Step]:
    """Each number of workers with the next. `rates`: workers -> samples/s of each round; all have the same rounds.

    0 is left out: where nothing computes, one worker loads no faster than the process that waits for it.
    """
    numbers = sorted(number for number in rates if number)
    return [Step(one, other, paired_ratio(rates[other], rates[one])) for one, other in pairwise(numbers)]


def saturation(found: Sequence[Step]) -> Step | None:
    """The step from the smallest number after which the next adds less than LEAST; None where each added as much."""
    return next((step for step in found if not step.adds), None)


def middle(rates: Sequence[float]) -> float:
    """The geometric mean, which ratios of rates are ratios of."""
    return math.exp(math.fsum(map(math.log, rates)) / len(rates))


def sentence(name: str, rates: Mapping[int, Sequence[float]], device_rates: Sequence[float]) -> str:
    """`processes saturate at 2 (215 samples/s): 4 add -1.0 % (-3.0 % to +1.1 %). That feeds 0.87 devices at 246 samples/s each.`"""
    found = steps(rates)
    enough = saturation(found)
    if enough is None:
        at, most = max(rates), found[-1].gain if found else None
        text = f"{name}: no saturation up to {at} ({middle(rates[at]):.0f} samples/s)" + (
            f": the last step added {_gain(most)}" if most else ""
        )
    else:
        at, sure = enough.workers, "" if enough.certain else " perhaps"
        text = f"{name} saturate{sure} at {at} ({middle(rates[at]):.0f} samples/s): {enough.following} add {_gain(enough.gain)}"
    fed = " or ".join(f"{middle(rates[at]) / rate:.2g} devices at {rate:g} samples/s each" for rate in device_rates)
    return f"{text}. That feeds {fed}."


def _gain(gain: Estimate) -> str:
    value, low, high = ((end - 1) * 100 for end in (gain.value, gain.low, gain.high))
    known = math.isfinite(high) and gain.high / gain.low < TOO_WIDE
    return f"{value:+.1f} % ({low:+.1f} % to {high:+.1f} %)" if known else f"{value:+.1f} % (of an interval too wide to use)"
