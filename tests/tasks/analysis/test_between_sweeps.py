"""What two sweeps may lie apart by, of one place and of two."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.stats.estimate import Estimate
from experiments.stats.spread import Spread
from tasks.analysis.between_sweeps import HOSTS_NOT_KNOWN, NOT_KNOWN, WHERE_NOT_KNOWN, spread_between
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.judge_cells import ratio_of
from tasks.analysis.known_spread import place_of
from tasks.analysis.spread_history import UNKNOWN, KnownSpread, KnownSpreads
from tests.tasks.cell_support import made, row, settings, workers
from tests.tasks.fake_sweep import as_suite

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


def test_a_spread_of_logarithms_is_not_added_to_a_difference() -> None:
    """A metric of ratios of which one sweep has a value of 0 is compared by differences."""
    rows = [row(workers(0), summary={"energy_j_per_sample": joules}) for joules in (2.0, 0.0)]
    suite = as_suite(settings(metric="energy_j_per_sample"))
    one, none = (make_cells([each], suite, known=lambda *_: CPU)[0] for each in rows)
    assert (one.on_own_scale, none.on_own_scale) == (True, False)
    spreads = KnownSpreads({place_of(one.measured[0], "energy_j_per_sample"): knows(sweep=CPU, host=HOSTS)})
    assert spread_between(one, one, spreads)[1] is None
    assert spread_between(one, none, spreads) == spread_between(none, one, spreads) == ([], NOT_KNOWN)
    assert (one.known, none.known) == (CPU, None)
    assert ratio_of(one, none, paired=False) == Estimate(-2.0, -math.inf, math.inf, math.inf, 1, linear=True), "nor is that of trials"
    repeats = [row(workers(0), repeat=n, summary={"energy_j_per_sample": joules}) for n, joules in enumerate((0.0, 1.0, 2.0), 1)]
    [some] = make_cells(repeats, suite, known=lambda *_: CPU)
    assert (some.on_own_scale, some.known) == (False, None)
    assert ratio_of(one, some, paired=False).se == math.inf, "also where only the other side has trials that show their own spread"
