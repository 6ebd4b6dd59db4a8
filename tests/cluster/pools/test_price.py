"""The price of a pool: what its entry may say, and what a trial pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.pools.placement import price_of
from cluster.pools.pool import Pool, load_pools
from experiments.config.errors import ConfigError


def pool(**values: Any) -> Pool:
    return Pool(**{"name": "p", "device": "cuda", "address": "http://127.0.0.1:1", "price_per_hour": 2.5, **values})


@pytest.mark.parametrize(
    ("per", "devices", "per_node", "units"),
    [
        ("accelerator", 1, 8, 1),
        ("accelerator", 3, 8, 3),
        ("accelerator", 3, None, 3),
        ("node", 1, 8, 1),
        ("node", 8, 8, 1),
        ("node", 9, 8, 2),
        ("node", 4, None, 1),
    ],
)
def test_a_trial_pays_the_accelerators_it_uses_or_the_nodes_it_takes(per: str, devices: int, per_node: int | None, units: int) -> None:
    price = price_of(pool(price_per=per, accelerators_per_node=per_node, price_currency="EUR"), {"devices": devices})
    assert price is not None
    assert (price.units, price.trial_per_hour, price.currency) == (units, 2.5 * units, "EUR")


def test_a_trial_without_devices_uses_one() -> None:
    price = price_of(pool(price_per="accelerator"), {})
    assert price is not None and price.units == 1


def test_a_pool_without_a_price_costs_nothing_that_is_known() -> None:
    assert price_of(pool(price_per_hour=None), {"devices": 1}) is None
    assert all(price_of(found, {}) is None for found in load_pools().values()), "no price is made up"


@pytest.mark.parametrize(
    ("entry", "key", "said"),
    [
        (
            "device: cuda, address: embedded, price_per_hour: 2",
            "price_per",
            "is missing beside price_per_hour",
        ),
        ("device: cuda, address: embedded, price_per: node", "price_per", "without price_per_hour"),
        ("device: cuda, address: embedded, price_currency: USD", "price_currency", "without price_per_hour"),
        ("device: cpu, address: embedded, price_per_hour: 1, price_per: accelerator", "price_per", "write `price_per: node`"),
        (
            "device: hpu, address: embedded, emulated: true, price_per_hour: 1, price_per: node",
            "price_per_hour",
            "no meaning on an emulated",
        ),
        ("device: cuda, address: embedded, price_per_hour: 0, price_per: node", "price_per_hour", "greater than 0"),
        ("device: cuda, address: embedded, price_per_hour: cheap, price_per: node", "price_per_hour", "is 'cheap'"),
        ("device: cuda, address: embedded, price_per_hour: 1, price_per: gpu", "price_per", "is 'gpu'"),
    ],
)
def test_a_wrong_price_is_an_error_that_names_the_key(tmp_path: Path, entry: str, key: str, said: str) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(f"pools:\n  p: {{{entry}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_pools(path)
    assert f"pools.p.{key}" in str(caught.value) and said in str(caught.value)
