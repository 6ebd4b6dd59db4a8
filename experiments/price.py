"""What a trial's share of its pool costs by the hour, and what a million samples cost at its throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from experiments.config.strict import Strict

COST = "cost_per_million_samples"
_MILLION, _HOUR_S, _KWH_J = 1e6, 3600.0, 3.6e6
Value = float | int | bool | None


class Price(Strict):
    """The price of what one trial takes of its pool, as pools.yaml had it when the trial was planned. It is no part of the trial's key."""

    per_hour: float = Field(gt=0, allow_inf_nan=False, description="of one accelerator or of one node, in `currency`")
    per: Literal["accelerator", "node"]
    units: int = Field(
        ge=1, description="how many of them the trial pays: the accelerators that it uses, or the nodes that it takes, whole"
    )
    currency: str = Field("", description="as the pool names it; empty: it names none")

    @property
    def trial_per_hour(self) -> float:
        """Of the whole trial."""
        return self.per_hour * self.units

    @property
    def text(self) -> str:
        """For people: `2.49 USD per accelerator and hour, 2 of them`."""
        amount = f"{self.per_hour:g} {self.currency}".rstrip()
        return f"{amount} per {self.per} and hour" + (f", {self.units} of them" if self.units > 1 else "")


def costs(price: Price | None, summary: Mapping[str, Value]) -> dict[str, float]:
    """The metric COST and the ends of its interval over steps, in the price's currency; {} without a price or a throughput.

    Cost of a million samples = price of the trial's share by the hour / 3600 s x 10^6 / throughput in samples/s. It is that of the measured
    window: set-up, compilation and evaluation cost more. A low throughput makes a high cost, so the interval's ends change places.
    """
    found = {}
    for end, of in (("", ""), ("_low", "_high"), ("_high", "_low")):
        rate = summary.get(f"throughput{of}")
        if price is not None and rate and rate > 0:
            found[f"{COST}{end}"] = price.trial_per_hour / _HOUR_S * _MILLION / rate
    return found if COST in found else {}


def kwh_per_million(joules_per_sample: float) -> float:
    """kWh for a million samples: J per sample x 10^6 / 3.6 x 10^6 J per kWh."""
    return joules_per_sample * _MILLION / _KWH_J
