"""Whether a sweep that compares costs knows the prices that these are made of."""

from __future__ import annotations

from experiments.config.errors import ConfigError
from experiments.price import COST
from tasks.sweep.store import Plan


def check_priced(plan: Plan) -> None:
    """Raise ConfigError where a plan's metric, or a limit of its race, is a cost and a pool of it has no price or another currency."""
    limits = [limit.metric for limit in plan.race.where] if plan.race else []
    asked = next((name for name in (plan.suite.report.metric, *limits) if name.startswith(COST)), None)
    if asked is None:
        return
    prices = {trial.pool: trial.price for trial in plan.trials if not trial.emulated}
    lacking = [pool for pool, price in prices.items() if price is None]
    if lacking:
        hint = "give it `price_per_hour`, `price_per` and `price_currency` in your pools file ($SWEEPBENCH_POOLS)"
        raise ConfigError.one("pools", None, f"{lacking[0]}.price_per_hour", f"is not set, and {asked} is made of it", hint)
    currencies = {pool: price.currency for pool, price in prices.items() if price is not None}
    if len(set(currencies.values())) > 1:
        named = ", ".join(f"{pool}: {currency or 'none'}" for pool, currency in currencies.items())
        raise ConfigError.one(
            "pools", None, "price_currency", f"differs ({named}), so costs have no ratio", "give all prices in one currency"
        )
