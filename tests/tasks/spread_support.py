"""Past sweeps with a chosen spread, as files of the store. Nothing here is a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import workloads
from experiments.atomic_file import atomic_write
from experiments.non_default_parameters import default_values
from tasks.analysis import past_cell
from tasks.analysis.spread_store import PastTrial, SweepSpread

DEVICE, WORKLOAD = "Made-up CPU", "bridgetower"  # those of tests.tasks.fake_sweep


def write_history(
    root: Path,
    *,
    pool: str = "cpu",
    device: str | None = DEVICE,
    workload: str | None = WORKLOAD,
    sweeps: int = 12,
    cells: int = 3,
    repeats: int = 3,
    trial_sd: float = 0.01,
    sweep_sd: float = 0.0,
    host_sd: float = 0.0,
    hosts: Sequence[str | None] = ("box",),
    seed: int = 0,
    metric: str = "throughput",
) -> list[PastTrial]:
    """Sweep by sweep on the hosts in turn; the day's and the host's effect is the same for all cells of a sweep. Returns all trials."""
    rng = np.random.default_rng(seed)
    of_host = {host: rng.normal(0, host_sd) for host in dict.fromkeys(hosts)}
    everything: list[PastTrial] = []
    (root / "spread").mkdir(parents=True, exist_ok=True)
    for number in range(sweeps):
        host = hosts[number % len(hosts)]
        day = of_host[host] + rng.normal(0, sweep_sd)
        trials = [
            past_trial(
                f"{workload} {cell}",
                100.0 * (cell + 1) * float(np.exp(day + rng.normal(0, trial_sd))),
                pool,
                device,
                host,
                workload=workload,
                metric=metric,
            )
            for cell in range(cells)
            for _ in range(repeats)
        ]
        everything += trials
        name = f"past-{pool}-{workload}-{seed}-20250101-{number:06d}-0000"
        atomic_write(root / "spread" / f"{name}.json", SweepSpread(sweep_id=name, trials=trials).model_dump_json() + "\n")
    return everything


def past_trial(
    cell: str,
    value: float,
    pool: str = "cpu",
    device: str | None = DEVICE,
    host: str | None = "box",
    *,
    version: str = "v1",
    workload: str | None = WORKLOAD,
    metric: str = "throughput",
) -> PastTrial:
    """One trial that counts."""
    return PastTrial(
        cell=cell,
        version=version,
        workload=workload,
        pool=pool,
        device=device,
        host=host,
        started_at=1_767_225_600.0,
        values={metric: value},
    )


def have_defaults(monkeypatch: pytest.MonkeyPatch, **defaults: Any) -> None:
    """Another day's schema of tests.tasks.fake_sweep's workload: with these defaults, of its own parameters and of further ones."""
    values = {**default_values(workloads.load("bridgetower").Parameters), **defaults}
    monkeypatch.setattr(past_cell, "_defaults", lambda workload, folders: values)
