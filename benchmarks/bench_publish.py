"""Seconds to publish 8,000 values (1,000 steps x 8 metrics) to MLflow on a fresh SQLite database, as sweeps do it.

A sweep publishes 4 metrics a step, so 2,000 steps are as many values. `mlflow_s` is what the same number of values takes with MLflow's own
`log_batch` alone, `ratio` ours over that. `end_of_trial_s` is what is left at the end of a 1,000-step trial: summary, tags, steps.parquet.
None of it is in a trial's process: the flow's publishing thread does it. Prints one JSON line; exit status 1 over the limit.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT_S = 1.0
ROUNDS = 5
STEPS, VALUES = 1000, 8000


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SWEEPBENCH_RUNS"] = folder
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        used = time.process_time()
        values_s, mlflow_s, end_s = measure(Path(folder))
        used = time.process_time() - used
    row = {
        "benchmark": "publish",
        "values": VALUES,
        "seconds": round(statistics.median(values_s), 3),
        "limit_s": LIMIT_S,
        "met": statistics.median(values_s) < LIMIT_S,
        "mlflow_s": round(statistics.median(mlflow_s), 3),
        "ratio": round(statistics.median(values_s) / statistics.median(mlflow_s), 2),
        "rounds": [round(value, 3) for value in values_s],
        "end_of_trial_s": round(statistics.median(end_s), 3),
        "cpu_s_in_all": round(used, 1),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(row))
    return 0 if row["met"] else 1


def measure(folder: Path) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each round: the values as a sweep sends them, as many with MLflow alone, and the end of a trial whose steps are there."""
    from cluster.journal.journal import read_journal
    from cluster.trial_layout import JOURNAL
    from experiments.trial import Outcome, TrialResult
    from tasks.analysis.results import write_steps
    from tasks.sweep.plan import make_plan
    from tasks.sweep.store import Request, SweepStore
    from tasks.tracking.client import connect
    from tasks.tracking.log_trial import finish_trial, log_records, step_metrics
    from tasks.tracking.runs import SweepRuns

    suite = folder / "publish.yaml"
    suite.write_text(f"suite: publish\nworkload: synthetic\naxes: {{pool: [cpu], seed: {list(range(ROUNDS + 1))}}}\n")
    plan, _ = make_plan(Request(suite=str(suite), profile="full"))
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    runs = SweepRuns(connect(), plan)
    values_s, mlflow_s, end_s = [], [], []
    for trial in plan.trials:
        path = store.trial_dir(trial.key)
        write_journal(path)
        write_steps(path)
        journal = read_journal(path / JOURNAL)
        run_id = runs.trial_run(trial, 1, journal.steps[0]["t"])
        records = [{**step, "step": step["step"] + again * STEPS} for again in (0, 1) for step in journal.steps]
        metrics = list(step_metrics(records))
        assert len(metrics) == VALUES
        bare = runs.client.create_run(runs.experiment_id).info.run_id
        mlflow_s.append(seconds(lambda bare=bare, metrics=metrics: log_alone(runs.client, bare, metrics)))
        values_s.append(seconds(lambda run_id=run_id, records=records: log_records(runs.client, run_id, records)))
        result = TrialResult(key=trial.key, attempt=1, outcome=Outcome.OK, started_at=journal.steps[0]["t"], finished_at=time.time())
        sent = {step["step"] for step in journal.steps}
        end_s.append(seconds(lambda args=(trial, journal, result, path, sent): finish_trial(runs, *args)))
    return values_s[1:], mlflow_s[1:], end_s[1:]  # the first meets cold caches


def log_alone(client: Any, run_id: str, metrics: list[Any]) -> None:
    for start in range(0, len(metrics), 1000):
        client.log_batch(run_id, metrics=metrics[start : start + 1000])


def write_journal(folder: Path) -> None:
    """The journal of a trial of STEPS steps."""
    from cluster.journal.journal import JournalWriter
    from cluster.trial_layout import JOURNAL

    parts = {"data_wait_s": 0.01, "h2d_s": 0.0, "forward_backward_s": 0.07, "optimizer_s": 0.02, "total_s": 0.1}
    with JournalWriter(folder / JOURNAL, 1) as journal:
        begin = time.time()
        for step in range(1, STEPS + 1):
            journal.append("step", t=begin + step * 0.1, step=step, measured=step > 10, loss=2.0 / step, samples=16, **parts)
        samples = (STEPS - 10) * 16
        ranks = [{"rank": 0, "samples": samples, "wall_s": 99.0}]
        journal.append("window", wall_s=99.0, samples=samples, ranks=ranks, peak_memory_bytes=None)


def seconds(work: object) -> float:
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
