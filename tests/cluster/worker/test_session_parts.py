"""The parts of a session: what it keeps, what it lets go of, and what takes no time."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from cluster.worker import beside_window, trial_session
from cluster.worker.measure.recorder import NullSink, Recorder
from cluster.worker.measured_window import Steps, unrecorded
from cluster.worker.rank_group import Ranks
from cluster.worker.set_up import SessionContext, set_up
from cluster.worker.trial_session import process_started_at
from tests.contracts import make_trial

KEY = "aaaa00000000000e"


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def ready(folder: Path, **parameters: Any) -> SessionContext:
    return set_up(make_trial(folder, KEY, batch_size=4, width=8, **parameters), Ranks(), Recorder(NullSink()), folder)


def test_a_context_does_not_change(tmp_path: Path) -> None:
    context = ready(tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.model_facts = {}  # type: ignore[misc]
    assert context.workload is context.train_step.workload


def test_a_resized_workload_has_its_batch_size_and_what_building_the_model_told(tmp_path: Path) -> None:
    context = dataclasses.replace(ready(tmp_path), model_facts={"image_size": 288})
    resized = context.resized(3)
    assert resized is not context.workload and vars(resized)["image_size"] == 288
    assert resized.samples(next(iter(resized.batches()))) == 3


def test_nothing_keeps_the_batches_and_the_workload_of_the_size_before(tmp_path: Path) -> None:
    context = ready(tmp_path)
    steps = Steps(context)
    steps.clock.begin()
    assert steps.run(range(1, 3), unrecorded) == 2 * 4
    workload, batches = weakref.ref(context.workload), weakref.ref(steps._batches)
    steps.stop()
    gc.collect()
    assert batches() is None, "the processes that load them have ended before the next size is tried"
    steps.restart(context.resized(6))
    context.train_step.workload = context.resized(6)
    gc.collect()
    assert workload() is None
    steps.clock.begin()
    assert steps.run(range(1, 3), unrecorded) == 2 * 6


def test_evaluation_takes_no_time_where_the_trial_asks_for_none(tmp_path: Path) -> None:
    assert beside_window.evaluate(ready(tmp_path, evaluate=False), "before") == 0.0


def test_a_session_counts_from_the_start_of_its_process() -> None:
    assert 0 < process_started_at() <= time.time()


def test_the_start_of_a_process_is_known_to_a_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its 22nd field is ticks after the boot; the second may hold blanks and brackets."""
    stat = tmp_path / "stat"
    stat.write_text(f"7 (a ) b (c) S {' '.join('0' * 18)} {int(100.25 * os.sysconf('SC_CLK_TCK'))} 0 0\n")
    monkeypatch.setattr(trial_session, "_STAT", stat)
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 105.25}.__getitem__)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert process_started_at() == pytest.approx(995.0, abs=0.01)
    monkeypatch.setattr(trial_session, "_STAT", tmp_path / "none")
    assert process_started_at() == psutil.Process().create_time(), "where there is no such file"


def test_ranks_alone_exchange_nothing() -> None:
    alone = Ranks()
    alone.meet()
    assert alone.gather("mine") == ["mine"] and alone.largest(0.25, torch.device("cpu")) == 0.25
