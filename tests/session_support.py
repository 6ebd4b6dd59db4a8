"""A trial's session in virtual time: its device and its train step take no real time, and say what they were asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.devices.clock import EventClock, HostClock
from cluster.devices.cpu import Cpu
from cluster.worker import beside_window, measured_window, set_up
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from tests.clock_support import Simulation
from tests.contracts import make_trial

COPY, COMPUTE, UPDATE, BESIDE = 0.003, 0.010, 0.002, 0.5  # s on the device; the last beside the steps, from a batch's copy on
STEP = COPY + COMPUTE + UPDATE
EVALUATION = 7.0
POWER_W = 40.0
UNIX = 10_000.0  # Unix time when virtual time is 0
STEPS = 6


class World(Simulation):
    """The host, the device, and what happened in which order: phases, and calls that touch the device."""

    def __init__(self) -> None:
        super().__init__()
        self.beside_free_at = 0.0
        self.log: list[str] = []
        self.records: list[dict[str, Any]] = []

    def flush(self) -> None:
        self.log.append("flush")

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        self.records.append({"kind": kind, **fields})
        if kind != "step":
            self.log.append(f"{kind} {fields.get('name', '')}".strip())

    def close(self) -> None: ...

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == kind]

    def after(self, mark: str) -> list[str]:
        return self.log[self.log.index(mark) + 1 :]


class Clock(EventClock):
    """Says when it begins."""

    def __init__(self, world: World) -> None:
        super().__init__(world.event, lambda: torch.zeros(()), wall=lambda: UNIX + world.host, now=lambda: world.host)
        self.world = world

    def begin(self) -> None:
        self.world.log.append("begin")
        super().begin()


class Device(Cpu):
    """An accelerator that computes in virtual time, and copies beside it for a while that no mark of a step waits for."""

    kind, name = "cuda", "some GPU"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def _say(self, what: str, value: Any = None) -> Any:
        self.world.log.append(what)
        return value

    def clock(self, *, synchronous: bool = False) -> Any:
        if synchronous:
            return HostClock(lambda: self.world.host, lambda: UNIX + self.world.host, self.synchronize)
        return Clock(self.world)

    def unsupported(self, precision: str) -> None:
        return None

    def set_precision(self, precision: str) -> None:
        self._say(f"set_precision {precision}")

    def set_threads(self, threads: int | None, ranks_here: int) -> int | None:
        return threads

    def synchronize(self) -> None:
        self._say("synchronize")
        self.world.host = max(self.world.host, self.world.device_free_at, self.world.beside_free_at)

    def reset_peak_memory(self) -> None:
        self._say("reset")

    def peak_memory_bytes(self) -> int | None:
        return int(self._say("peak", 2**30))

    def alloc_retries(self) -> int | None:
        return int(self._say("retries", 3))

    def energy_j(self) -> float | None:
        return float(self._say("energy", POWER_W * self.world.host + 1e6))

    def describe(self) -> dict[str, Any]:
        return {"device_name": self.name}


class FakeTrainStep:
    """Takes virtual time, and writes down which steps it did."""

    sharded = False
    converted: str | None = None
    workload: Any = None  # what a session makes it of

    def __init__(self, world: World) -> None:
        self.world, self.model = world, None
        self.steps: list[int] = []

    launched, recorded = 0, False

    def leave_graphs_out(self) -> None:
        self.world.log.append("graphs left out")

    def place(self, batch: Any) -> Any:
        self.world.launch(COPY)
        self.world.beside_free_at = self.world.device_free_at + BESIDE
        return batch

    def forward_backward(self, batch: Any) -> torch.Tensor:
        self.world.launch(COMPUTE)
        return torch.tensor(0.5)

    def update(self, step: int) -> None:
        self.world.launch(UPDATE)
        self.steps.append(step)

    def samples(self, batch: Any) -> int:
        return len(batch["vectors"])

    def step_kind(self, batch: Any) -> str | None:
        return None

    def diagnostics(self, step: int) -> dict[str, float | None]:
        return {"rms.x": float(step)}

    def evaluate(self) -> dict[str, float]:
        self.world.host += EVALUATION
        return {"loss": 1.0, "chance_loss": 2.0}


class Setting:
    """One session, made and run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.folder = folder
        self.device = Device(self.world)
        self.train_step = FakeTrainStep(self.world)
        monkeypatch.setattr(set_up, "load_device", lambda kind, rank: self.device)
        monkeypatch.setattr(set_up, "environment", lambda device, world_size, threads: {"host": "h", "threads": threads})
        monkeypatch.setattr(set_up, "TrainStep", self._make)
        clock = SimpleNamespace(time=lambda: UNIX + self.world.host, perf_counter=lambda: self.world.host)
        monkeypatch.setattr(measured_window, "time", clock)
        monkeypatch.setattr(beside_window, "time", clock)

    def _make(self, workload: Any, *_others: Any) -> FakeTrainStep:
        self.train_step.workload = workload
        return self.train_step

    def session(self, ranks: Ranks = Ranks(), probe: str | None = None, **parameters: Any) -> TrialSession:  # noqa: B008 - it is frozen
        values = {"steps": STEPS, "warmup_steps": 3, "evaluate": True, "threads": 1, "pin_memory": False, **parameters}
        trial = make_trial(self.folder, "0123456789abcdef", **values)
        return TrialSession(trial, ranks, Recorder(self.world, ranks.world_size), self.folder, probe=probe, started_at=UNIX - 100)

    def run(self, ranks: Ranks = Ranks(), probe: str | None = None, **parameters: Any) -> dict[str, Any]:  # noqa: B008
        """The last record of the window, {} if none was written."""
        self.session(ranks, probe, **parameters).run()
        return next(reversed(self.world.of("window")), {})
