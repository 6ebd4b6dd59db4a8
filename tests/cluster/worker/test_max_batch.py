"""The search for the largest batch, on a pretended device."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.journal.journal import read_journal
from cluster.trial_layout import JOURNAL
from cluster.worker.kept_sizes import about_of
from cluster.worker.max_batch import PROBE_HEADROOM, RESOLUTION, Answer, decode, predict, search
from cluster.worker.outcome import TrialEnded
from experiments.trial import Outcome
from tests.cluster.worker.probe_support import Here, LeavesPieces, Pretended, found_on

ROOM = 1 - PROBE_HEADROOM


class Device:
    """Out of memory over its limit; otherwise it tells what it used, if it tells at all."""

    def __init__(self, fixed: float, each: float, *, noise: float = 0.0, bend: float = 0.0) -> None:
        self.fixed, self.each, self.noise, self.bend = fixed, each, noise, bend
        self.tried: list[int] = []

    def used(self, size: int) -> float:
        wobble = self.noise * random.Random(size).uniform(-1, 1)
        return self.fixed + self.each * size + self.bend * size**2 + wobble

    def __call__(self, size: int) -> Answer:
        self.tried.append(size)
        used = self.used(size)
        return Answer(False) if used > 1 else Answer(used <= ROOM, used)  # over 1 it died and could tell nothing


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
    search(lambda size: Answer(silent(size).fits), room=ROOM)
    assert good == pytest.approx(77, abs=1) and len(told.tried) <= 5 and len(silent.tried) >= 12


class FlatAtFirst(Device):
    """FLAVA 2.7b on an H200: up to some 12 samples the peak is where the optimiser's states come to be, and says nothing of the batch."""

    def used(self, size: int) -> float:
        return max(0.358, super().used(size))


def test_a_line_through_sizes_that_are_flat_is_trusted_once_alone() -> None:
    """Compiled, each size takes a process: with the line trusted three times, 98, 130 and 138 ran out of memory too, of 14 in all."""
    device = FlatAtFirst(0.2524, 0.0088)
    good, bad = search(device, room=ROOM)
    check(device, good, bad)
    assert device.tried[:5] == [1, 8, 16, 147, 48] and len(device.tried) == 7, device.tried


def test_between_a_size_that_fits_and_three_times_that_the_size_between_is_tried() -> None:
    """Whose geometric mean, rounded down, is the one that fits."""
    answers = {1: Answer(True, 0.958), 8: Answer(False, 1.0), 3: Answer(False), 2: Answer(False)}
    tried: list[int] = []

    def probe(size: int) -> Answer:
        assert size not in tried, f"{size} twice, after {tried}"
        tried.append(size)
        return answers[size]

    assert (search(probe, room=ROOM), tried) == ((1, 2), [1, 8, 3, 2])


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

    def probe(size: int) -> Answer:
        tried.append(size)
        return Answer(size <= capacity)

    good, bad = search(probe)
    assert bad is not None and good <= capacity < bad
    assert bad - good <= max(1, int(good * RESOLUTION))
    assert len(tried) == len(set(tried)), "no size is probed twice"
    assert len(tried) <= 2 * capacity.bit_length() + 2


def test_not_even_one_sample() -> None:
    assert search(lambda size: Answer(False)) == (0, 1)


@pytest.mark.parametrize("used", [None, 1e-9])
def test_the_search_stops_at_its_limit(used: float | None) -> None:
    assert search(lambda size: Answer(True, used and used * size), limit=64) == (64, None)


def test_no_size_is_much_larger_than_one_that_fits() -> None:
    tried: list[int] = []

    def probe(size: int) -> Answer:
        tried.append(size)
        return Answer(True, 0.1 + size * 1e-9)

    assert search(probe) == (65_536, None)
    assert tried == [1, 8, 512, 32_768, 65_536]


def test_what_was_found_holds_on_the_same_device_with_the_same_allocator_packages_and_code_alone() -> None:
    environment = {"device_name": "x", "alloc_conf": "expandable_segments:True", "packages": "aa", "host_id": "h"}
    about = about_of(environment, "c0de")
    assert about == about_of({**environment, "host_id": "another"}, "c0de")
    for name in ("device_name", "alloc_conf", "packages"):
        assert about_of({**environment, name: "other"}, "c0de") != about, name
    assert about_of(environment, "0ther") != about


def test_the_line_is_drawn_through_sizes_that_are_apart() -> None:
    assert predict([(1, 0.1), (8, 0.17)], 0.97) == pytest.approx(88)
    assert predict([(1, 0.12), (8, 0.17), (76, 0.85), (77, 0.851)], 0.97) == pytest.approx(77 + 0.119 / ((0.851 - 0.17) / 69))
    assert predict([(8, 0.2)], 0.97) is None and predict([(1, 0.2), (8, 0.2)], 0.97) is None


@pytest.mark.parametrize(("compile", "devices_opened"), [("none", 2), ("layer", 4)])
def test_sizes_that_fit_are_tried_in_one_process_unless_something_was_recorded_for_a_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compile: str, devices_opened: int
) -> None:
    found, notes = found_on(tmp_path, monkeypatch, Pretended, compile=compile)
    assert found.size == 87 and "88 does not" in found.note
    assert Pretended.opened == devices_opened == len(Here.commands), found.note
    assert any("batch size 8 fits with 18.0% of the device's memory" in note for note in notes)
    assert any("batch size 88 does not fit: it ran, but only 2.0%" in note for note in notes)


def test_a_size_that_runs_out_of_memory_ends_its_process_and_the_next_one_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a line would say is used from 60 samples on, so that the prediction runs out of memory."""

    class Bent(Pretended):
        def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
            if len(batch["vectors"]) > 60:
                raise torch.OutOfMemoryError("CUDA out of memory (bent)")
            return super().place(batch, prepare, prefetch=prefetch)

    found, notes = found_on(tmp_path, monkeypatch, Bent)
    assert found.size == 60 and "61 does not" in found.note
    assert any("does not fit: CUDA out of memory (bent)" in note for note in notes)
    assert len(Here.commands) > 1
    assert {*(decode(Here.commands[-1][-1]) or ())} >= {1, 8}, "the last process was told what the first had learnt"
    tried = [note.split()[2] for note in notes if note.startswith("batch size ")]
    assert len(tried) == len(set(tried)), "no size is probed twice"


class LeavesNoPiece(Pretended):
    """So much that no larger size than 70 finds a piece of memory that is large enough."""

    def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
        if self.released and len(batch["vectors"]) > 70:
            raise torch.OutOfMemoryError("CUDA out of memory (in pieces)")
        return super().place(batch, prepare, prefetch=prefetch)


def test_each_answer_is_noted_with_what_the_search_knows_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live table reads it."""
    found_on(tmp_path, monkeypatch, LeavesPieces)
    records = [note for note in read_journal(tmp_path / JOURNAL).notes if "batch_search" in note]
    assert [note["text"].split()[:2] for note in records] == [["batch", "size"]] * len(records)
    assert records[0]["batch_search"] == {"fits": 1, "too_large": None}
    fits, too_large = 0, 65_537
    for note in records:
        size, fitted = int(note["text"].split()[2]), note["text"].split()[3] == "fits"
        fits, too_large = (max(fits, size), too_large) if fitted else (fits, min(too_large, size))
        assert note["batch_search"] == {"fits": fits, "too_large": None if too_large == 65_537 else too_large}
    assert records[-1]["batch_search"]["too_large"] is not None


@pytest.mark.parametrize("device", [LeavesPieces, LeavesNoPiece])
def test_that_a_size_does_not_fit_only_a_process_tells_that_tried_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: type[Pretended]
) -> None:
    found, notes = found_on(tmp_path, monkeypatch, device)
    assert found.size == 87 and "88 does not" in found.note, found.note
    assert device.opened == len(Here.commands) > 2
    assert not any("in pieces" in note for note in notes), "what the sizes before left is no reason"
    tried = [note.split()[2] for note in notes if note.startswith("batch size ")]
    assert len(tried) == len(set(tried)), "each size has one answer"


def test_a_model_that_does_not_fit_at_all_is_a_result_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiny(Pretended):
        def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory (tiny)")

    with pytest.raises(TrialEnded, match=r"not even one sample fits: .*tiny") as ended:
        found_on(tmp_path, monkeypatch, Tiny)
    assert ended.value.outcome == Outcome.DOES_NOT_FIT
    assert len(Here.commands) == 1
