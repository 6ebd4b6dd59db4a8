"""Where another host's value lands. H200 is what suites measured on several H200 machines: bridgetower, the same compiled, clip, bert, and
flava on two devices with DDP and with FSDP2. No two are known to share a machine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.stats.nested import host_law, independent_df
from experiments.stats.replication import Replication, replication_interval

H200 = {
    "bridgetower": [182.1, 182.6, 182.9],
    "bridgetower compiled": [249.0, 246.3, 220.3, 238.0],  # the last is the middle of 233 to 243
    "clip": [393.8, 399.4, 402.6],
    "bert": [748.5, 751.4, 762.9],
    "flava ddp": [116.9, 96.0],
    "flava fsdp2": [41.4, 30.7],
}
ENDS = (233.0, 243.0)  # what the last machine gave in several trials


def predicted(values: dict[str, list[float]], cell: str, without: int | None = None) -> Replication | None:
    """The range for another machine, from all values but one of the cell's."""
    known = {name: [v for place, v in enumerate(each) if (name, place) != (cell, without)] for name, each in values.items()}
    hosts = [{f"{name} {place}": [math.log(v)] for place, v in enumerate(each)} for name, each in known.items()]
    law = host_law(hosts)
    assert law is not None
    return replication_interval(known[cell], law, independent_df([each for each in hosts if len(each) > 1]))


def test_every_h200_that_is_left_out_lands_in_the_range_of_the_others() -> None:
    """13 of 13. Of flava one machine is left, which is too few for a range."""
    inside, outside, too_few = [], [], []
    for cell, values in H200.items():
        for place, value in enumerate(values):
            found = predicted(H200, cell, without=place)
            if found is None:
                too_few.append((cell, value))
            else:
                ends = ENDS if value == 238.0 else (value, value)
                (inside if found.low <= ends[0] and ends[1] <= found.high else outside).append((cell, value))
    assert (len(inside), outside, len(too_few)) == (13, [], 4)
    assert {cell for cell, _ in too_few} == {"flava ddp", "flava fsdp2"}


def test_so_few_machines_leave_wide_ranges() -> None:
    """Honest rather than useful: cells differ so much in how far machines lie apart that a quiet one gets no narrow range."""
    quiet, compiled, flava = (predicted(H200, cell) for cell in ("bridgetower", "bridgetower compiled", "flava ddp"))
    assert quiet is not None and compiled is not None and flava is not None
    assert (quiet.hosts, compiled.hosts, flava.hosts) == (3, 4, 2)
    assert (quiet.low, quiet.high) == pytest.approx((148, 225), rel=0.02)
    assert (compiled.low, compiled.high) == pytest.approx((194, 292), rel=0.02)
    assert (flava.low, flava.high) == pytest.approx((67, 167), rel=0.02)


def test_many_machines_give_a_range_that_95_of_100_land_in() -> None:
    """8 machines of 12 cells whose machines lie 1 % apart; the share over 400 further machines of every cell."""
    rng = np.random.default_rng(0)
    logs = rng.normal(0, 0.01, (12, 8))
    law = host_law([{f"{c} {h}": [float(logs[c, h])] for h in range(8)} for c in range(12)])
    assert law is not None
    inside = []
    for cell in range(12):
        found = replication_interval(np.exp(logs[cell]).tolist(), law, 84)
        assert found is not None
        later = np.exp(rng.normal(0, 0.01, 400))
        inside.append(np.mean((found.low <= later) & (later <= found.high)))
        assert math.log(found.high / found.low) / 2 < 0.035
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("hosts", "pooled_df", "known"), [(1, 99, False), (2, 3, False), (2, 4, True), (3, 2, True)])
def test_how_many_hosts_are_enough(hosts: int, pooled_df: int, known: bool) -> None:
    law = host_law([{"a": [0.0], "b": [0.01], "c": [-0.01]}])
    assert law is not None
    assert (replication_interval([100.0, 101.0, 102.0][:hosts], law, pooled_df) is not None) is known


def test_on_the_linear_scale_the_range_has_the_metrics_unit() -> None:
    law = host_law([{"a": [0.1], "b": [0.12], "c": [0.08]}])
    assert law is not None
    found = replication_interval([0.1, 0.12, 0.08], law, 4, logarithmic=False)
    assert found is not None and found.low + found.high == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no logarithm"):
        replication_interval([0.0, 1.0, 2.0], law, 4)
