"""Made-up rows of trials on a pool with a price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from experiments.price import Price, costs
from tasks.analysis.trial_row import TrialRow


def priced(rows: Iterable[TrialRow], per_hour: float = 3.6, *, units: int = 1, currency: str = "USD") -> list[TrialRow]:
    """The rows as a sweep has them on a pool of this price, by the node."""
    price = Price(per_hour=per_hour, per="node", units=units, currency=currency)
    return [
        replace(row, trial=row.trial.model_copy(update={"price": price}), summary={**row.summary, **costs(price, row.summary)})
        for row in rows
    ]
