"""The history of a cell as a figure: what its values are relative to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.stats.verdict import Verdict
from tasks.nightly.figures import course
from tasks.nightly.history import Measured
from tests.tasks.nightly.night_support import DATES, trials

LEVELS = dict(zip(DATES[:5], (100.0, 100.0, 90.0, 100.0, 100.0), strict=True))


def by_date(name: str, role: str = "history") -> dict[str, list[Measured]]:
    return {date: [replace(one, values={"throughput": level}) for one in trials(name, [date], role=role)] for date, level in LEVELS.items()}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_values_are_without_the_share_of_what_the_canary_did(share: float) -> None:
    """The node is a tenth slower for a night, and cell and canary with it; the first night has no canary."""
    canary = by_date("canary", "canary")
    del canary[DATES[0]]
    found = course("one", "throughput", by_date("one"), canary, share, {DATES[2]: Verdict.SLOWER}, [])
    assert found.dates == list(LEVELS)
    assert found.raw == pytest.approx(list(LEVELS.values()))
    assert found.values == pytest.approx([100.0, 100.0, 100.0 * 0.9 ** (1 - share), 100.0, 100.0])
    assert np.array_equal(found.low, found.high)


def test_without_a_canary_values_are_as_measured() -> None:
    found = course("one", "throughput", by_date("one"), {}, 1.0, {}, [])
    assert found.values == pytest.approx(list(LEVELS.values()))


@pytest.mark.parametrize("repeats", [2, 3, 8])
def test_a_nights_interval_holds_what_it_says(repeats: int) -> None:
    """Nights of the default three repeats, whose value is their middle one, have a wider one than their mean would."""
    random, blank = np.random.default_rng(repeats), trials("one", ["x"], repeats=repeats)
    held = []
    for _ in range(100):
        rates = np.exp(random.normal(0.0, 0.02, (len(DATES), repeats))).tolist()
        nights = {
            date: [replace(one, values={"throughput": rate}) for one, rate in zip(blank, row, strict=True)]
            for date, row in zip(DATES, rates, strict=True)
        }
        found = course("one", "throughput", nights, {}, 0.0, {}, [])
        held += [*(found.low <= 1) & (found.high >= 1)]
    assert 0.94 < np.mean(held) < 0.97


def test_of_single_trials_there_is_no_interval() -> None:
    nights = {date: trials("one", [date], repeats=1) for date in DATES[:5]}
    found = course("one", "throughput", nights, {}, 0.0, {}, [])
    assert found.low == pytest.approx(found.values) and found.high == pytest.approx(found.values)
    assert course("one", "throughput", {}, {}, 0.0, {}, []).low.shape == (0,)
