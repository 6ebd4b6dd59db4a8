"""A whole `sweep run` over trials that measure nothing: Prefect, MLflow, slots and report, all but the trials' own processes.

A launcher writes at once what a trial would have left (finished_sweep.py), so what the flow takes for each trial, and what it keeps of it,
shows in minutes instead of hours. A trial begins once MLflow has taken all but the last few: in a real sweep trials take longer than that.
Prints one JSON object, and on standard error one every hundred trials: `memory_mib` of the flow's process, by the number of trials that
MLflow had in full; `publish_ms`, the median CPU time that MLflow's client and its SQLite took for a trial, from its run's creation to its
end, of the first tenth of trials and of the last; `cpu_ms` of this process a trial, likewise. What remains in the folder of results is a
finished sweep.

    SWEEPBENCH_RUNS=FOLDER python -m benchmarks.made_up_flow --trials 5000
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from rich.console import Console

from benchmarks.finished_sweep import without_fsync, write_suite, write_trial
from cluster import launchers
from cluster.launchers import Launch, Status, local
from cluster.packages import installed
from experiments.config.paths import runs_root
from experiments.trial import Trial
from flows.cli.run_sweep import run_sweep
from tasks.sweep import head_start
from tasks.sweep.begin_sweep import begin_sweep
from tasks.sweep.plan import make_plan
from tasks.sweep.store import Request, SweepStore
from tasks.tracking import live
from tasks.tracking.runs import SweepRuns

BEHIND = 20  # trials whose end MLflow may not have taken yet
EVERY = 100  # trials, after which the memory is read


class Measured:
    """What is measured while the flow runs."""

    def __init__(self, trials: int) -> None:
        """`trials`: of the whole sweep."""
        self._trials, self._begun, self._unended_s = trials, 0, 0.0
        self.memory_mib = dict[int, float]()
        self.publish_s, self.cpu_s = list[float](), list[float]()

    def begin(self) -> None:
        """A trial begins."""
        while self._begun - len(self.publish_s) > BEHIND:
            time.sleep(0.01)
        self._begun += 1
        self.cpu_s.append(time.process_time())

    def publish(self, send: Callable[[], None], ended: int) -> None:
        """A batch goes to MLflow. The trials that end in it share what it took, and what batches without an end took before it."""
        began = time.thread_time()
        send()
        self._unended_s += time.thread_time() - began
        for _ in range(ended):
            self.publish_s.append(self._unended_s / ended)
            if len(self.publish_s) % EVERY == 0 or len(self.publish_s) == self._trials:
                self.memory_mib[len(self.publish_s)] = round(psutil.Process().memory_info().rss / 2**20, 1)
                print(json.dumps(self.report()), file=sys.stderr, flush=True)
        self._unended_s = 0.0 if ended else self._unended_s

    def report(self) -> dict[str, Any]:
        """What is printed."""
        cpu_s = [after - before for before, after in pairwise(self.cpu_s)]
        return {"memory_mib": self.memory_mib, "publish_ms": _ends(self.publish_s), "cpu_ms": _ends(cpu_s)}


class MeasuredPublisher(live.LivePublisher):
    """Notes what MLflow takes."""

    measured: Measured

    def _send(self, runs: SweepRuns, batch: live._Batch) -> None:
        self.measured.publish(lambda: super(MeasuredPublisher, self)._send(runs, batch), len(batch.ended))


class MadeUpLauncher(local.LocalLauncher):
    """Trials end as soon as they have begun."""

    measured: Measured

    def prepare(self, trial: Trial, trial_dir: Path) -> None:
        pass

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        self.measured.begin()
        write_trial(SweepStore(trial.sweep_id), trial, installed())
        launch = launchers.load(trial_dir)
        assert launch is not None
        return launch

    def status(self, launch: Launch) -> Status:
        return Status(running=False, exit_code=0)

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        pass


def _ends(seconds: Sequence[float]) -> list[float]:
    """Milliseconds: the median of the first tenth, and of the last."""
    if not seconds:
        return []
    tenth = max(1, len(seconds) // 10)
    return [round(1000 * statistics.median(part), 1) for part in (seconds[:tenth], seconds[-tenth:])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=50, help="measured steps of a trial")
    options = parser.parse_args()
    suite = write_suite(runs_root() / "scale.yaml", options.trials, steps=options.steps)
    plan, _ = make_plan(Request(suite=str(suite), profile="full"))
    nowhere = Console(file=open(os.devnull, "w"))  # noqa: SIM115 - to the end of the process
    MadeUpLauncher.measured = MeasuredPublisher.measured = measured = Measured(len(plan.trials))
    with ExitStack() as stack:
        stack.enter_context(without_fsync())
        stack.enter_context(patch.object(live, "LivePublisher", MeasuredPublisher))  # the flow's modules are not imported yet
        for module in (local, head_start):
            stack.enter_context(patch.object(module, "LocalLauncher", MadeUpLauncher))
        begin_sweep(plan)
        status = run_sweep(plan, nowhere, nowhere)
    print(json.dumps({"trials": len(plan.trials), "status": status, **measured.report()}))
    return status


if __name__ == "__main__":
    sys.exit(main())
