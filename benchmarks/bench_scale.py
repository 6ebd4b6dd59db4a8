"""Seconds and memory of what looks at a finished sweep, by its number of trials. `make bench-scale`.

Each command runs as a user would call it, in a process of its own, on a sweep that benchmarks/finished_sweep.py made. `report, first` meets
a sweep that nobody has looked at; the others find what that one kept, as they do after a sweep's own flow. `publish` sends a sweep to a
fresh MLflow on SQLite, trial by trial as its flow does, and compares the time of its last tenth of trials with the first; it takes 0.1 s a
trial, so it has a size of its own. `flow memory` is by how much that process has grown since trial 100: MLflow's client and what the flow
keeps of trials, without Prefect. Prints a JSON line each; exit status 1 where a limit is not met.

    python -m benchmarks.bench_scale --trials 1000 5000 --publish 1000
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil

if TYPE_CHECKING:
    from tasks.sweep.store import SweepStore

LIMITS_S = {"plan": 3.0, "plan --sweep": 3.0, "show": 2.0, "report, again": 15.0, "resume": 10.0}  # of 5,000 trials, on a free machine
LIMIT_OF = 5000
GROWTH_MIB = 50.0  # of a flow, from trial 100 to the last
SLOWER = 1.5  # the last tenth of trials beside the first: no slower but for noise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[1000])
    parser.add_argument("--steps", type=int, default=50, help="measured steps of a trial")
    parser.add_argument("--publish", type=int, default=200, help="trials that are sent to MLflow; 0: none, and no resume is timed")
    options = parser.parse_args()
    met = True
    for trials in options.trials:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SWEEPBENCH_RUNS"] = folder
            os.environ.pop("MLFLOW_TRACKING_URI", None)
            for row in commands(trials, options.steps):
                met &= say({"trials": trials, **row})
    if options.publish:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SWEEPBENCH_RUNS"] = folder
            for row in published(options.publish, options.steps):
                met &= say({"trials": options.publish, **row})
    return 0 if met else 1


def say(row: dict[str, Any]) -> bool:
    """Print a row with its limit. Returns whether that is met."""
    limit = LIMITS_S.get(row["name"])
    if limit is not None and row["trials"] <= LIMIT_OF:
        row |= {"limit_s": limit, "met": row["seconds"] <= limit}
    print(json.dumps({"benchmark": "scale", **row, "load": round(os.getloadavg()[0], 1)}), flush=True)
    return bool(row.get("met", True))


def commands(trials: int, steps: int) -> list[dict[str, Any]]:
    """What the listings and the report take."""
    suite, _ = made(trials, steps)
    rows = [timed("report, first", "report", "last")]
    rows += [timed("plan", "plan", str(suite)), timed("plan --sweep", "plan", "--sweep", "last")]
    rows += [timed("show", "show", "last"), timed("report, again", "report", "last")]
    page = next(Path(os.environ["SWEEPBENCH_RUNS"]).glob("scale-*/report.html"))
    return [*rows, {"name": "report.html", "mib": round(page.stat().st_size / 2**20, 2)}]


def made(trials: int, steps: int) -> tuple[Path, str]:
    """A finished sweep in SWEEPBENCH_RUNS: its suite and its id."""
    from benchmarks.finished_sweep import finished_sweep, write_suite

    suite = write_suite(Path(os.environ["SWEEPBENCH_RUNS"]) / "scale.yaml", trials, steps=steps)
    return suite, finished_sweep(suite).sweep_id


def timed(name: str, *arguments: str) -> dict[str, Any]:
    """One `sweep` command: wall time, CPU time and most memory."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, "-m", "flows.cli", *arguments], stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"sweep {' '.join(arguments)} ended with {process.returncode}: {said.read()[-2000:].decode()}")
    return {
        "name": name,
        "seconds": round(seconds, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mib": round(used.ru_maxrss / 1024),
    }


def published(trials: int, steps: int) -> list[dict[str, Any]]:
    """Publish a sweep as its flow does while trials run and at the end, and resume it with nothing to do."""
    from tasks.report.write import write_report
    from tasks.sweep.store import SweepStore
    from tasks.tracking.projection import publish_sweep

    store = SweepStore(made(trials, steps)[1])
    seconds, grown = publish_live(store)
    write_report(store.dir)
    publish_sweep(store, store.load_plan(), [], None, wait_s=0)
    tenth = max(1, len(seconds) // 10)
    first, last = (statistics.median(part) for part in (seconds[:tenth], seconds[-tenth:]))
    row = {"name": "publish", "seconds": round(sum(seconds), 1), "first_ms": round(1000 * first, 1), "last_ms": round(1000 * last, 1)}
    memory = {"name": "flow memory", "grown_mib": round(grown, 1), "met": grown <= GROWTH_MIB}
    return [{**row, "last_by_first": round(last / first, 2), "met": last <= SLOWER * first}, memory, timed("resume", "resume", "last")]


def publish_live(store: SweepStore) -> tuple[list[float], float]:
    """Seconds of the end of each trial, and how much the process has grown from the 100th to the last, MiB."""
    from cluster.journal.journal import read_journal
    from cluster.trial_layout import JOURNAL
    from tasks.tracking import live

    plan, seconds, finish_trial = store.load_plan(), list[float](), live.finish_trial

    def finish(*arguments: Any) -> str:
        began = time.perf_counter()
        run_id = finish_trial(*arguments)
        seconds.append(time.perf_counter() - began)
        return run_id

    publisher = live.LivePublisher(plan, logging.getLogger("bench"))
    publisher.start()
    resident = [0, 0]
    with patch.object(live, "finish_trial", finish):
        for number, trial in enumerate(plan.trials, 1):
            result, folder = store.result(trial.key), store.trial_dir(trial.key)
            assert result is not None
            publisher.feed(trial, result.attempt, result.started_at, read_journal(folder / JOURNAL).steps)
            publisher.finish(trial, result, folder)
            while len(seconds) < number - 20:
                time.sleep(0.01)
            resident[number > 100] = psutil.Process().memory_info().rss
        publisher.close()
    return seconds, (resident[1] - resident[0]) / 2**20


if __name__ == "__main__":
    sys.exit(main())
