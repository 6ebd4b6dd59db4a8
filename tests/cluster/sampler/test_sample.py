"""The sampler's loop in virtual time, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.sampler import main as sampler
from cluster.sampler.main import sample, wait


class Journal:
    """Keeps the records."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def append(self, kind: str, **fields: Any) -> None:
        self.records.append({"kind": kind, **fields})


class Source:
    """Takes `cost(number)` seconds for a reading, and raises where `fails(number)`."""

    def __init__(self, name: str, clock: Clock, cost: Callable[[int], float], fails: Callable[[int], bool] = lambda number: False) -> None:
        self.name, self.clock, self.cost, self.fails, self.number = name, clock, cost, fails, 0

    def read(self) -> int:
        self.number += 1
        self.clock.now += self.cost(self.number)
        if self.fails(self.number):
            raise OSError("gone")
        return self.number


class Clock:
    """Virtual time; waits for it until it is `end`."""

    def __init__(self, end: float) -> None:
        self.now, self.end = 100.0, 100.0 + end
        self.waits: list[float] = []

    def wait(self, until: float) -> bool:
        self.waits.append(round(until - 100.0, 3))
        if until > self.end:
            self.now = max(self.now, self.end)
            return False
        self.now = max(self.now, until)
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(0.95)
    monkeypatch.setattr(sampler, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def run(clock: Clock, *sources: Source) -> list[dict[str, Any]]:
    journal = Journal()
    sample(journal, list(sources), clock.wait)  # type: ignore[arg-type]
    return journal.records


def test_deadlines_are_counted_from_the_start_and_the_end_is_sampled(clock: Clock) -> None:
    records = run(clock, Source("cpu", clock, lambda number: 0.003))
    assert clock.waits == [pytest.approx(tick / 10) for tick in range(1, 11)], "no drift"
    assert [record["cpu"] for record in records] == list(range(1, 12))
    assert {record["kind"] for record in records} == {"state"}


def test_what_was_missed_is_left_out(clock: Clock) -> None:
    run(clock, Source("cpu", clock, lambda number: 0.35 if number == 3 else 0.001))
    assert clock.waits == [0.1, 0.2, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_source_that_fails_is_said_once_and_the_others_go_on(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    failing = Source("devices", clock, lambda number: 0.0, fails=lambda number: number in (2, 3))
    records = run(clock, failing, Source("cpu", clock, lambda number: 0.0))
    assert [record.get("devices") for record in records] == [1, None, None, *range(4, 12)]
    assert [record["cpu"] for record in records] == list(range(1, 12))
    assert capsys.readouterr().err == "the sampler cannot read devices: OSError: gone\n"


def test_a_byte_the_end_of_the_pipe_and_another_parent_end_the_wait() -> None:
    def waits(write: bytes | None, parent: int) -> bool:
        reader, writer = os.pipe()
        if write:
            os.write(writer, write)
        if write is not None:
            os.close(writer)
        answer = wait(-1.0, parent, reader)
        for handle in (reader, *([writer] if write is None else [])):
            os.close(handle)
        return answer

    assert waits(None, os.getppid())
    assert not waits(b"\n", os.getppid())
    assert not waits(b"", os.getppid())
    assert not waits(None, os.getpid())


def test_a_file_that_cannot_be_written_ends_it_with_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "device_state.jsonl"
    path.write_text("no journal\n")
    arguments = ["--out", str(path), "--attempt", "1", "--device", "cpu", "--trial", "key", "--worker", "1"]
    assert sampler.main(arguments) == 1
    assert "the sampler of the device's state ended" in capsys.readouterr().err
    assert path.read_text() == "no journal\n"


def test_it_imports_nothing_that_takes_long() -> None:
    modules = ["main", "cpu", "cgroup", "nvml", "hpu", "clock_lock", "state_file", "trial_processes", "other_processes"]
    code = f"import sys; {'; '.join(f'import cluster.sampler.{name}' for name in modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cluster.sampler.hpu" in done.stdout.split()
    assert not {"torch", "numpy", "pydantic", "ray", "pandas"} & set(done.stdout.split())
