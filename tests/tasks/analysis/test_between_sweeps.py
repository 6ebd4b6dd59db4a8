"""What two sweeps may lie apart by, of one place and of two."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.stats.spread import Spread
from tasks.analysis.between_sweeps import HOSTS_NOT_KNOWN, NOT_KNOWN, WHERE_NOT_KNOWN, spread_between
from tasks.analysis.cell import Cell
from tasks.analysis.known_spread import place_of
from tasks.analysis.spread_history import UNKNOWN, KnownSpread, KnownSpreads
from tests.tasks.cell_support import made, row, workers

CPU, GPU = Spread(0.01, 4.0), Spread(0.03, 9.0)
HOSTS = Spread(0.05, 3.0)


def cell(pool: str, host: str | None = "one", device: str = "Made-up") -> Cell:
    environment = {"device_name": device, **({"host_id": host} if host else {})}
    [found] = made([row(workers(0, pool), environment=environment)])
    return found


def knows(**spreads: Spread) -> KnownSpread:
    return replace(UNKNOWN, **spreads)


def known(**spreads: tuple[Cell, KnownSpread]) -> KnownSpreads:
    return KnownSpreads({place_of(of.measured[0], "throughput"): spread for of, spread in spreads.values()})


def test_of_one_place_both_sides_vary_alike_and_of_two_each_as_it_does() -> None:
    one, other = cell("cpu"), cell("gpu")
    spreads = known(cpu=(one, knows(sweep=CPU)), gpu=(other, knows(sweep=GPU)))
    [both], why = spread_between(one, cell("cpu"), spreads)
    assert (both.sd, both.df, why) == (pytest.approx(math.sqrt(2) * 0.01), 4.0, None)
    assert spread_between(one, other, spreads) == ([CPU, GPU], None)
    assert spread_between(other, one, spreads) == ([GPU, CPU], None)
    assert spread_between(one, other, known(cpu=(one, knows(sweep=CPU)))) == ([], NOT_KNOWN), "of one side alone"


@pytest.mark.parametrize(("host", "why"), [("two", HOSTS_NOT_KNOWN), (None, WHERE_NOT_KNOWN)])
def test_on_other_hosts_of_the_kind_it_is_that_between_hosts(host: str | None, why: str) -> None:
    one, other = cell("cpu"), cell("cpu", host)
    [both], nothing = spread_between(one, other, known(cpu=(one, knows(sweep=CPU, host=HOSTS))))
    assert (both.sd, both.df, nothing) == (pytest.approx(math.sqrt(2) * 0.05), 3.0, None)
    assert spread_between(one, other, known(cpu=(one, knows(sweep=CPU)))) == ([], why)
    elsewhere = cell("cpu", host, "Other")
    both_kinds = known(cpu=(one, knows(sweep=CPU)), other=(elsewhere, knows(sweep=GPU)))
    assert spread_between(one, elsewhere, both_kinds) == ([CPU, GPU], None), "the kinds' difference is what is asked for"
