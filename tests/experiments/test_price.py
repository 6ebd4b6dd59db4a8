"""What a trial's share of a pool costs, and a million samples at its throughput."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from experiments.price import COST, Price, costs, kwh_per_million

PRICE = Price(per_hour=3.6, per="accelerator", units=2, currency="USD")


def test_a_million_samples_cost_the_time_they_take() -> None:
    found = costs(PRICE, {"throughput": 100.0, "throughput_low": 80.0, "throughput_high": 125.0})
    # 7.2 USD an hour are 0.002 USD/s; a million samples take 10,000 s
    assert found == pytest.approx({COST: 20.0, f"{COST}_low": 16.0, f"{COST}_high": 25.0})


def test_an_interval_that_is_not_known_is_none() -> None:
    assert costs(PRICE, {"throughput": 100.0, "throughput_low": None, "throughput_high": None}) == pytest.approx({COST: 20.0})


@pytest.mark.parametrize("summary", [{}, {"throughput": None}, {"throughput": 0.0}, {"throughput_low": 1.0, "throughput_high": 2.0}])
def test_without_a_rate_there_is_no_cost(summary: dict[str, float | None]) -> None:
    assert costs(PRICE, summary) == {}


def test_without_a_price_there_is_no_cost() -> None:
    assert costs(None, {"throughput": 100.0}) == {}


@pytest.mark.parametrize("wrong", [{"per_hour": 0}, {"per_hour": float("inf")}, {"per": "rack"}, {"units": 0}])
def test_a_price_is_of_something_and_more_than_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Price.model_validate({"per_hour": 1.0, "per": "node", "units": 1, **wrong})


def test_a_price_in_words() -> None:
    assert PRICE.text == "3.6 USD per accelerator and hour, 2 of them"
    assert Price(per_hour=0.25, per="node", units=1).text == "0.25 per node and hour"


def test_a_joule_a_sample_is_a_3_6th_of_a_kilowatt_hour_a_million() -> None:
    assert kwh_per_million(3.6) == pytest.approx(1.0)
