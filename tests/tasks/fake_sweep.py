"""Builds a sweep directory with made-up numbers through the real journal writer. Nothing here is a measurement."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cluster.journal.journal import JournalWriter
from experiments.atomic_file import atomic_write
from experiments.json_file import seal_of
from experiments.spec.schema import Suite
from experiments.trial import Outcome, Trial, TrialResult, digest
from tasks.analysis.results import write_steps
from tasks.sweep.store import SweepStore
from tests.tasks.plan_support import make_suite

SUITE: dict[str, Any] = {
    "description": "Made-up numbers.",
    "baseline": {"dataloader_workers": 0},
    "report": {"rows": ["pool", "model"], "columns": "dataloader_workers", "metric": "throughput", "title": None},
}


def as_suite(told: Mapping[str, Any]) -> Suite:
    """A suite that was checked, of which only what a test is about is told, as a YAML file would have it."""
    report = {"rows": ["pool", "model"], "columns": "dataloader_workers", **(told.get("report") or {})}
    return Suite.model_validate({**make_suite().model_dump(), "workload": "bridgetower", **told, "report": report})


SWEEP_ID = "made-up-20260101-000000-0000"
TREE = "0123456789abcdef"
WARMUP = 5


@dataclass
class Fake:
    """One trial to make up: `axes` in the suite's order, `rate` in samples/s."""

    axes: dict[str, Any]
    rate: float = 100.0
    outcome: Outcome | None = Outcome.OK
    reason: str | None = None
    noise: float = 0.01  # relative, of a step's time
    between: float = 0.0005  # relative, of a trial's rate
    waits: float = 0.1  # share of a step
    steps: int = 60
    emulated: bool = False
    environment: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    loss: Callable[[int], float] = lambda step: 2 + 3 * 0.97**step
    loss_noise: float = 0.02
    repeats: int = 1
    evaluations: bool = True
    metrics: dict[str, float] = field(default_factory=dict)  # more of the evaluation before training
    workload: str = "bridgetower"
    device: str = "cpu"
    rms: Callable[[int], float] | None = None  # RMS_t of a tensor `patch` by step
    window: dict[str, Any] = field(default_factory=dict)  # more of the window's record


def make_sweep(root: Path, fakes: Sequence[Fake], *, sweep_id: str = SWEEP_ID, suite: Mapping[str, Any] = SUITE) -> Path:
    """Write plan.json and every trial's files; repeats interleaved. Returns the sweep's directory."""
    sweep_dir = root / sweep_id
    trials = []
    repeats = max(fake.repeats for fake in fakes)
    for repeat in range(1, repeats + 1):
        for fake in fakes:
            if repeat <= fake.repeats:
                trial = _trial(fake, repeat, len(trials), sweep_id)
                trials.append(trial)
                _write_trial(sweep_dir / "trials" / trial.key, trial, fake)
    plan = {
        "schema_version": 3,
        "sweep_id": sweep_id,
        "suite": as_suite(suite).model_dump(mode="json"),
        "request": {"suite": "made_up"},
        "profile": "smoke",
        "command": "sweep run made_up --profile smoke",
        "created_at": 1_767_225_600.0,
        "git": {"commit": "0123456789abcdef0123", "dirty": True},
        "tree": TREE,
        "trials": [trial.model_dump(mode="json") for trial in trials],
    }
    atomic_write(sweep_dir / "plan.json", json.dumps({**plan, "seal": seal_of(plan)}))
    return sweep_dir


def whole_sweep(root: Path, fakes: Sequence[Fake], *, sweep_id: str = SWEEP_ID, suite: Mapping[str, Any] = SUITE) -> SweepStore:
    """Such a sweep with its derived steps, as a flow leaves it; `root` is $SWEEPBENCH_RUNS."""
    for trial in trial_dirs(make_sweep(root, fakes, sweep_id=sweep_id, suite=suite)):
        write_steps(trial)
    return SweepStore(sweep_id)


def trial_dirs(sweep_dir: Path) -> list[Path]:
    """In the plan's order."""
    return [sweep_dir / "trials" / trial["key"] for trial in json.loads((sweep_dir / "plan.json").read_text())["trials"]]


def _trial(fake: Fake, repeat: int, index: int, sweep_id: str) -> Trial:
    parameters = {
        "devices": 1,
        "batch_size": 8,
        "precision": "fp32",
        "seed": 0,
        "warmup_steps": WARMUP,
        **{k: v for k, v in fake.axes.items() if k != "pool"},
        **fake.parameters,
    }
    cell = digest({"pool": fake.axes.get("pool", "cpu"), **parameters})
    return Trial(
        key=digest([cell, repeat, sweep_id]),
        key_parts={"sweep": sweep_id},
        sweep_id=sweep_id,
        suite="made_up",
        workload=fake.workload,
        pool=str(fake.axes.get("pool", "cpu")),
        device=fake.device,
        emulated=fake.emulated,
        cell=cell,
        repeat=repeat,
        index=index,
        axes=fake.axes,
        parameters={**parameters, "seed": parameters["seed"] + repeat - 1},
    )


def _write_trial(folder: Path, trial: Trial, fake: Fake) -> None:
    folder.mkdir(parents=True)
    atomic_write(folder / "trial.json", trial.model_dump_json())
    if fake.outcome is None:
        return
    random = np.random.default_rng([trial.index, 7])
    environment = {
        "device_name": "Made-up CPU",
        "torch": "2.13.0",
        "host": "box",
        "host_id": "0123456789ab",
        "clock": "host perf_counter",
        "tree": TREE,
        **fake.environment,
    }
    with JournalWriter(folder / "journal.jsonl", attempt=1, interval=60, trial=trial.key) as journal:
        journal.append("environment", **environment)
        if fake.outcome is Outcome.OK:
            _write_steps(journal, fake, random)
        journal.append("end", outcome=str(fake.outcome), reason=fake.reason)
    result = TrialResult(
        key=trial.key,
        attempt=1,
        outcome=fake.outcome,
        reason=fake.reason,
        started_at=1_767_225_600.0 + trial.index,
        finished_at=1_767_225_601.0 + trial.index,
        emulated=fake.emulated,
        environment=environment,
    )
    atomic_write(folder / "result.json", result.model_dump_json())


def _write_steps(journal: JournalWriter, fake: Fake, random: np.random.Generator) -> None:
    batch = 8
    rate = fake.rate * float(np.exp(random.normal(0, fake.between)))
    shared = np.random.default_rng(3).normal(0, fake.loss_noise, fake.steps)  # the same data order in every trial
    if fake.evaluations:
        journal.append("evaluation", when="before", metrics={"loss": 5.0, "recall_at_1": 0.02, **fake.metrics})
    times = np.maximum(0.2, 1 + fake.noise * random.normal(size=fake.steps))
    times *= batch / rate / times[WARMUP:].mean()
    wall = 0.0
    for number in range(1, fake.steps + 1):
        total = float(times[number - 1])
        measured = number > WARMUP
        wall += total if measured else 0
        journal.append(
            "step",
            t=1_767_225_600.0 + number,
            step=number,
            measured=measured,
            loss=fake.loss(number) + float(shared[number - 1]) + 0.002 * float(random.normal()),
            samples=batch,
            data_wait_s=fake.waits * total,
            h2d_s=0.02 * total,
            forward_backward_s=(0.85 - fake.waits) * total,
            optimizer_s=0.1 * total,
            total_s=total,
            **({"rms.patch": fake.rms(number)} if fake.rms else {}),
        )
    samples = batch * (fake.steps - WARMUP)
    window = {
        "wall_s": wall,
        "samples": samples,
        "ranks": [{"rank": 0, "samples": samples, "wall_s": wall}],
        "peak_memory_bytes": 3 * 2**30,
        "alloc_retries": 0,
        "energy_j": None,
        "mean_power_w": None,
        "time_to_first_step_s": 2.5,
        "compile_seconds": None,
        "first_measured_step": WARMUP + 1,
        "flops_per_sample": None,
        "peak_flops": None,
    }
    journal.append("window", **{**window, **fake.window})
    if fake.evaluations:
        journal.append("evaluation", when="after", metrics={"loss": 2.5, "recall_at_1": 0.31})
