"""The search for the largest batch, on a pretended device."""

from __future__ import annotations

import pytest

from cluster.worker.max_batch import RESOLUTION, search


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 47, 48, 100])
def test_small_devices_are_searched_to_the_last_sample_within_the_resolution(capacity: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= capacity

    good, bad = search(fits)
    assert bad is not None and good <= capacity < bad
    assert bad - good <= max(1, int(good * RESOLUTION))
    assert len(tried) == len(set(tried)), "no size is probed twice"
    assert len(tried) <= 2 * capacity.bit_length() + 2


def test_not_even_one_sample() -> None:
    assert search(lambda size: False) == (0, 1)


def test_the_search_stops_at_its_limit() -> None:
    assert search(lambda size: True, limit=64) == (64, None)
