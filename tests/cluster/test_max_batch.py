"""The search for the largest batch, on a pretended device."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.journal import JournalWriter
from cluster.worker.max_batch import RESOLUTION, Probed, memory_share, predict, search
from cluster.worker.outcome import TrialEnded
from cluster.worker.recorder import Recorder
from cluster.worker.session import PROBE_HEADROOM, Session

ROOM = 1 - PROBE_HEADROOM


class Device:
    """Out of memory over its limit; otherwise it tells what it used, if it tells at all."""

    def __init__(self, fixed: float, each: float, *, noise: float = 0.0, bend: float = 0.0) -> None:
        self.fixed, self.each, self.noise, self.bend = fixed, each, noise, bend
        self.tried: list[int] = []

    def used(self, size: int) -> float:
        wobble = self.noise * random.Random(size).uniform(-1, 1)
        return self.fixed + self.each * size + self.bend * size**2 + wobble

    def __call__(self, size: int) -> Probed:
        self.tried.append(size)
        used = self.used(size)
        return Probed(False) if used > 1 else Probed(used <= ROOM, used)  # over 1 it died and could tell nothing


def check(device: Device, good: int, bad: int | None) -> None:
    assert bad is not None and device.used(good) <= ROOM < device.used(bad), "both were tried and are what they are said to be"
    assert {good, bad} <= set(device.tried) and len(device.tried) == len(set(device.tried)), "no size is probed twice"
    assert bad - good <= max(1, int(good * RESOLUTION))


@pytest.mark.parametrize("each", [0.3, 0.11, 0.05, 0.0117, 0.004, 0.0009, 0.00005])
@pytest.mark.parametrize("fixed", [0.01, 0.16])
def test_a_line_through_two_small_sizes_finds_the_end_of_memory_in_a_few_probes(fixed: float, each: float) -> None:
    device = Device(fixed, each, noise=0.002 if each < 0.05 else 0.0)
    good, bad = search(device, room=ROOM)
    check(device, good, bad)
    assert len(device.tried) <= 7, device.tried


def test_the_large_model_of_the_h100_takes_five_probes_where_doubling_took_thirteen() -> None:
    told, silent = Device(0.1647, 0.01045, noise=0.002), Device(0.1647, 0.01045, noise=0.002)
    good, bad = search(told, room=ROOM)
    check(told, good, bad)
    search(lambda size: Probed(silent(size).fits), room=ROOM)
    assert good == pytest.approx(77, abs=1) and len(told.tried) <= 5 and len(silent.tried) >= 12


@pytest.mark.parametrize("bend", [2e-5, -2e-6])
def test_memory_that_is_no_line_costs_probes_but_not_the_answer(bend: float) -> None:
    device = Device(0.1, 0.004, bend=bend)
    good, bad = search(device, room=ROOM)
    check(device, good, bad)
    assert len(device.tried) <= 12, device.tried


def test_random_devices_are_always_bracketed() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        device = Device(draw.uniform(0, 0.6), 10 ** draw.uniform(-4, -0.5))
        if device.used(1) <= ROOM:
            check(device, *search(device, room=ROOM))


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 47, 48, 100])
def test_a_device_that_tells_nothing_is_searched_by_doubling_and_bisection(capacity: int) -> None:
    tried: list[int] = []

    def probe(size: int) -> Probed:
        tried.append(size)
        return Probed(size <= capacity)

    good, bad = search(probe)
    assert bad is not None and good <= capacity < bad
    assert bad - good <= max(1, int(good * RESOLUTION))
    assert len(tried) == len(set(tried)), "no size is probed twice"
    assert len(tried) <= 2 * capacity.bit_length() + 2


def test_not_even_one_sample() -> None:
    assert search(lambda size: Probed(False)) == (0, 1)


@pytest.mark.parametrize("used", [None, 1e-9])
def test_the_search_stops_at_its_limit(used: float | None) -> None:
    assert search(lambda size: Probed(True, used and used * size), limit=64) == (64, None)


def test_the_line_is_drawn_through_sizes_that_are_apart() -> None:
    assert predict([(1, 0.1), (8, 0.17)], 0.97) == pytest.approx(88)
    assert predict([(1, 0.12), (8, 0.17), (76, 0.85), (77, 0.851)], 0.97) == pytest.approx(77 + 0.119 / ((0.851 - 0.17) / 69))
    assert predict([(8, 0.2)], 0.97) is None and predict([(1, 0.2), (8, 0.2)], 0.97) is None


@pytest.mark.parametrize(("free", "fits"), [(0.4, True), (0.01, False), (None, True)])
def test_a_probe_leaves_what_it_took_in_its_journal(tmp_path: Any, free: float | None, fits: bool) -> None:
    with Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        device = SimpleNamespace(free_share_at_peak=lambda: free)
        session = SimpleNamespace(device=device, ranks=SimpleNamespace(rank=0), recorder=recorder)
        try:
            Session._check_headroom(session, {"wall_s": 1.0, "samples": 4})  # type: ignore[arg-type]
            assert fits
        except TrialEnded as ended:
            assert not fits and "1.0% of the device's memory stayed free" in ended.reason
    assert memory_share(tmp_path) == (None if free is None else pytest.approx(1 - free))
