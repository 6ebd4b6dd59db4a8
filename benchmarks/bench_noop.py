"""What a sweep of trials that do nothing costs, through `sweep run` on the embedded pool: Prefect, Ray Train, MLflow, report and all.

    python benchmarks/bench_noop.py [--trials 20]

Reports seconds and CPU-seconds per trial (of every process: the flow, its Prefect server, the trials) and the memory of the flow's process
as trials go by. Flat means: from trial 20 to the last it grows by no more than 0.1 MiB a trial. Prints one JSON line; exit status 1 if the
memory is not flat or a trial did not end ok. 200 trials, the number that counts, take 10 minutes and more.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

CELLS = 4
SETTLED = 20  # trials after which the flow has imported and cached what it ever will
LIMIT_MIB = 0.1  # growth a trial
MARKS = (20, 50, 100, 150, 200, 300, 400, 500)
SUITE = """
suite: noop
workload: synthetic
fixed: {{steps: 2, warmup_steps: 1, evaluate: false, width: 8, threads: 1}}
axes: {{pool: [cpu], seed: [0, 1, 2, 3]}}
repeats: {repeats}
report: {{rows: [pool], columns: seed}}
"""


def main() -> int:
    trials = parse().trials // CELLS * CELLS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "suites").mkdir()
        (folder / "suites" / "noop.yaml").write_text(SUITE.format(repeats=trials // CELLS))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_", "SWEEPBENCH_"))}
        environment = {**kept, "SWEEPBENCH_EXTRA": name, "SWEEPBENCH_RUNS": str(folder / "runs"), "HOME": name}
        started = time.monotonic()
        with open(folder / "log.txt", "wb") as log:
            command = [sys.executable, "-m", "flows.cli", "run", "noop", "--profile", "full"]
            flow = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            memory = watch(flow, folder / "runs")
        wall = time.monotonic() - started
        if flow.returncode != 0:
            print((folder / "log.txt").read_text()[-3000:], file=sys.stderr)
        spans = sorted(result_times(folder / "runs"))
    return report(trials, flow.returncode, wall, spans, memory)


def watch(flow: subprocess.Popen[bytes], runs: Path) -> dict[int, float]:
    """Follow the flow to its end. Returns its process's resident memory in MiB once so many trials were over."""
    process, memory = psutil.Process(flow.pid), dict[int, float]()
    while flow.poll() is None:
        done = len(list(runs.glob("*/trials/*/result.json")))
        try:
            size = process.memory_info().rss / 2**20
        except psutil.Error:
            break
        for mark in (SETTLED // 2, *MARKS):
            if done >= mark and mark not in memory:
                memory[mark] = size
        if done:
            memory[-1] = size  # the last one seen: after the report
        time.sleep(0.5)
    flow.wait()
    return memory


def result_times(runs: Path) -> list[tuple[float, float]]:
    results = [json.loads(path.read_text()) for path in runs.glob("*/trials/*/result.json")]
    return [(result["started_at"], result["finished_at"]) for result in results if result["outcome"] == "ok"]


def report(trials: int, status: int, wall: float, spans: list[tuple[float, float]], memory: dict[int, float]) -> int:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = memory.pop(-1, None)
    marks = sorted(mark for mark in memory if mark >= SETTLED)
    growth = (memory[marks[-1]] - memory[marks[0]]) / (marks[-1] - marks[0]) if len(marks) > 1 else None
    flat = growth is None or growth <= LIMIT_MIB
    row = {
        "benchmark": "noop",
        "trials": trials,
        "ok": len(spans),
        "wall_s": round(wall, 1),
        "seconds_per_trial": round((spans[-1][1] - spans[0][0]) / trials, 2) if spans else None,
        "cpu_s_per_trial": round((used.ru_utime + used.ru_stime) / trials, 2),
        "flow_memory_mib": {str(mark): round(memory[mark]) for mark in sorted(memory)},
        "flow_memory_at_end_mib": round(ended) if ended else None,
        "growth_mib_per_trial": None if growth is None else round(growth, 3),
        "limit_mib_per_trial": LIMIT_MIB,
        "met": None if growth is None else flat,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(row))
    return 0 if flat and status == 0 and len(spans) == trials else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help=f"a multiple of {CELLS}; memory is judged from 50 on")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
