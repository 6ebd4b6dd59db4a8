"""Make a finished sweep of any size, for benchmarks and tests of what reads one: real files, made-up numbers. Runs nothing.

The plan is that of `sweep run` for a suite of the synthetic workload. Journals, the sampler's records, results, slots.jsonl and status.json
go through the writers that trials and flows use, closed and sealed as they close and seal them. Only their fsyncs are left out: a power cut
is no part of it.

    python -m benchmarks.finished_sweep --trials 5000 --steps 50
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from cluster import launchers
from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.lines import Record
from cluster.launchers import Launch
from cluster.packages import installed
from cluster.sampler.state_file import mark_of
from cluster.trial_layout import DEVICE_STATE, JOURNAL, LOG, SLOTS
from experiments.atomic_file import atomic_write
from experiments.config.paths import runs_root
from experiments.summary import summarise
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.plan import make_plan
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.store import Plan, Request, SweepStore

WORKERS = (0, 1, 2, 4, 8)  # the columns of the report; the rows are learning rates
REPEATS = 5
WARMUP = 5
NO_FIT = 97  # every so many-th cell does not fit
BEGAN = 1_767_225_600.0  # Unix time of the first trial, s
TRIAL_S = 4.0  # from one trial's start to the next one's

SUITE = """\
suite: scale
description: Made-up numbers, nothing was measured
workload: synthetic
limit: {trials}
repeats: {repeats}
fixed: {{steps: {steps}, warmup_steps: {warmup}, evaluate: false, threads: 1, learning_rate_schedule: constant}}
axes:
  pool: [cpu]
  learning_rate: {rates}
  dataloader_workers: {workers}
baseline: {{dataloader_workers: 0}}
report: {{rows: [pool, learning_rate], columns: dataloader_workers}}
"""


def write_suite(path: Path, trials: int, *, steps: int = 50, repeats: int = REPEATS) -> Path:
    """The suite of a sweep of at least so many trials: a row of its table has 5 cells, each with `repeats` trials."""
    rows = -(-trials // (len(WORKERS) * repeats))
    rates = [round(1e-4 * (1 + row), 4) for row in range(rows)]
    text = SUITE.format(trials=max(trials, 2000), repeats=repeats, steps=steps, warmup=WARMUP, rates=rates, workers=list(WORKERS))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def finished_sweep(suite: Path) -> SweepStore:
    """Plan this suite, and write what its trials would have left, under runs/. Raises ConfigError."""
    plan, _ = make_plan(Request(suite=str(suite), profile="full"))
    plan = plan.model_copy(update={"created_at": BEGAN})
    store = SweepStore(plan.sweep_id)
    with without_fsync():
        store.save_plan(plan)
        finish(store, plan)
    return store


def finish(store: SweepStore, plan: Plan) -> None:
    """Write what the trials of a plan that have no result yet would have left, and how the flow ended."""
    slots, packages = SlotLog(store.dir / SLOTS), installed()
    for trial in plan.trials:
        if store.result(trial.key) is None:
            with patch.object(time, "time", side_effect=_clock(began_at(trial))):
                slots.taken(trial.key, trial.pool, ["made-up-0"], time.time())
                slots.started(trial.key, 1)
            write_trial(store, trial, packages)
            with patch.object(time, "time", side_effect=_clock(began_at(trial) + TRIAL_S - 0.5)):
                slots.given_back(trial.key)
    store.save_status(0, f"{store.sweep_id}: every trial ended as expected ({len(plan.trials)} made up)")


def began_at(trial: Trial) -> float:
    """When a trial began, Unix time, s: one after the other."""
    return BEGAN + TRIAL_S * trial.index


def write_trial(store: SweepStore, trial: Trial, packages: Mapping[str, str]) -> None:
    """The files of a trial that has ended."""
    folder, began = store.trial_dir(trial.key), began_at(trial)
    folder.mkdir(parents=True, exist_ok=True)
    fits = int(trial.cell, 16) % NO_FIT != 0
    outcome = Outcome.OK if fits else Outcome.DOES_NOT_FIT
    reason = None if fits else "out of device memory: made up"
    launchers.save(Launch(launcher="local", key=trial.key, attempt=1, id="1", born=began), folder)
    steps = _steps(trial, began) if fits else []
    with JournalWriter(folder / JOURNAL, 1, interval=3600, trial=trial.key) as journal:
        for kind, record in _records(trial, began, steps, packages):
            journal.append(kind, **record)
        journal.append("end", t=began + 3.4, outcome=str(outcome), reason=reason)
    with JournalWriter(folder / DEVICE_STATE, 1, interval=3600) as states:
        states.append(
            "sampler", t=began + 1, attempt=1, device="cpu", hz=10.0, cores=2, user="nobody", emulated=False, sources={"cpu": None}
        )
        for tick in range(20):
            quiet = {"mhz": None, "mhz_min": None, "load1": 0.5, "steal": 0.0, "others": 0.01, "psi_some": 0.01, "throttled": 0.0}
            states.append("state", t=began + 1 + tick / 10, cpu=quiet)
    written = read_journal(folder / JOURNAL)
    summary = dict(summarise(written.steps, written.window, [])) if fits else {}
    store.save_result(
        TrialResult(
            key=trial.key,
            attempt=1,
            outcome=outcome,
            reason=reason,
            started_at=began + 0.3,
            finished_at=began + 3.4,
            environment=written.environment,
            summary=summary,  # type: ignore[arg-type]
            journal=written.mark,
            device_state=mark_of(folder / DEVICE_STATE, 1),
        )
    )
    atomic_write(folder / LOG, "made up\n")


def _records(trial: Trial, began: float, steps: list[Record], packages: Mapping[str, str]) -> Iterator[tuple[str, Record]]:
    """(kind, fields) of a journal between its first record and its last."""
    yield "phase", {"t": began + 0.2, "name": "imports"}
    yield "phase", {"t": began + 0.6, "name": "start"}
    yield "packages", {"t": began + 0.6, "versions": dict(packages)}
    yield "environment", {"t": began + 0.6, **_environment()}
    for at, name in ((0.7, "data"), (0.8, "build"), (0.9, "first_step"), (1.0, "warmup"), (1.1, "measure")):
        yield "phase", {"t": began + at, "name": name}
    for step in steps:
        yield "step", step
    if steps:
        measured = steps[WARMUP:]
        wall = sum(step["total_s"] for step in measured)
        samples = sum(step["samples"] for step in measured)
        one = {"wall_s": wall, "samples": samples, "peak_memory_bytes": 400_000_000, "time_to_first_step_s": 0.7, "energy_j": None}
        ranks = [{"rank": 0, "samples": samples, "wall_s": wall}]
        yield "window", {"t": steps[-1]["t"] + 0.01, **one, "first_measured_step": WARMUP + 1, "ranks": ranks}


def _steps(trial: Trial, began: float) -> list[Record]:
    """The steps of a trial, warm-up included: some 10 % faster with each doubling of the loaders, with noise of 1 %, in 2 s."""
    random = np.random.default_rng([trial.index, 13])
    count, batch = int(trial.parameters["steps"]) + WARMUP, int(trial.parameters["batch_size"])
    faster = 1.1 ** WORKERS.index(trial.parameters["dataloader_workers"])
    times = 1.5 / count / faster * (1 + 0.01 * random.normal(size=count)) * float(np.exp(random.normal(0, 0.005)))
    ends = began + 1.1 + np.cumsum(times)
    return [
        {
            "t": float(ends[place]),
            "step": place + 1,
            "measured": place >= WARMUP,
            "loss": 2.0 / (place + 1) + 0.01 * float(random.normal()),
            "samples": batch,
            **{name: share * total for name, share in (("data_wait_s", 0.1), ("h2d_s", 0.02), ("forward_backward_s", 0.7))},
            "optimizer_s": 0.18 * total,
            "total_s": total,
            "loader_s": 0.08 * total,
        }
        for place, total in enumerate(map(float, times))
    ]


def _environment() -> Record:
    return {
        "device_kind": "cpu",
        "device_name": "Made-up CPU",
        "clock": "host perf_counter",
        "emulated": False,
        "world_size": 1,
        "threads": 1,
        "torch": "2.13.0",
        "python": "3.11.7",
        "host": "made-up",
        "host_id": "0123456789ab",
        "os": "Linux",
        "cpu": "Made-up CPU",
        "cores": 2,
        "git_commit": "0" * 40,
        "git_dirty": False,
        "tree": "0123456789abcdef",
        "packages": "0123456789abcdef",
        "compilation": "none",
    }


def _clock(at: float) -> Iterator[float]:
    while True:
        yield at


@contextmanager
def without_fsync() -> Iterator[None]:
    """Leave fsyncs out: thousands of small files take minutes with them."""
    with patch.object(os, "fsync", lambda descriptor: None):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=50, help="measured steps of a trial")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    began = time.perf_counter()
    suite = write_suite(runs_root() / "scale.yaml", options.trials, steps=options.steps, repeats=options.repeats)
    store = finished_sweep(suite)
    print(json.dumps({"sweep": store.sweep_id, "suite": str(suite), "seconds": round(time.perf_counter() - began, 1)}))


if __name__ == "__main__":
    main()
