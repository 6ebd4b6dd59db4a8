"""Seconds and memory of what looks at a finished sweep, by its number of trials. `make bench-scale`.

Each command runs as a user would call it, in a process of its own, on a sweep that benchmarks/finished_sweep.py made. `report, first` meets
a sweep that nobody has looked at; the others find what that one kept, as they do after a sweep's own flow. A whole flow over made-up
trials (made_up_flow.py) shows what publishing to a fresh MLflow on SQLite takes a trial in the first tenth and in the last, and by how much
the flow's process grows from trial 100 to the last; it takes some 0.3 s a trial, so it has a size of its own. Prints a JSON line each, with
its limit; exit status 1 where one is not met. Limits are of CPU time, which other work on the machine lengthens least.

    python -m benchmarks.bench_scale --trials 1000 5000 --flow 1000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMITS_S = {"plan": 3.0, "plan --sweep": 3.0, "show": 2.0, "report, again": 15.0, "resume": 10.0}  # of 5,000 trials, CPU time
LIMIT_OF = 5000
GROWTH_MIB, FROM = 50.0, 100  # of a flow, from so many trials to the last
SLOWER = 1.5  # the last tenth of trials beside the first: no slower but for noise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="*", default=[1000], help="none: the flow alone")
    parser.add_argument("--steps", type=int, default=50, help="measured steps of a trial")
    parser.add_argument("--flow", type=int, default=200, help="made-up trials of a whole flow; 0: none, and no resume is timed")
    options = parser.parse_args()
    met = True
    for trials in options.trials:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SWEEPBENCH_RUNS"] = folder
            os.environ.pop("MLFLOW_TRACKING_URI", None)
            for row in commands(trials, options.steps):
                met &= say({"trials": trials, **row})
    if options.flow:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SWEEPBENCH_RUNS"] = folder
            for row in flow(options.flow, options.steps):
                met &= say({"trials": options.flow, **row})
    return 0 if met else 1


def say(row: dict[str, Any]) -> bool:
    """Print a row with its limit. Returns whether that is met."""
    limit = LIMITS_S.get(row["name"])
    if limit is not None and row["trials"] <= LIMIT_OF:
        row |= {"limit_s": limit, "met": row["cpu_s"] <= limit}
    print(json.dumps({"benchmark": "scale", **row, "load": round(os.getloadavg()[0], 1)}), flush=True)
    return bool(row.get("met", True))


def commands(trials: int, steps: int) -> list[dict[str, Any]]:
    """What the listings and the report take."""
    suite = made(trials, steps)
    rows = [timed("report, first", "report", "last")]
    rows += [timed("plan", "plan", str(suite)), timed("plan --sweep", "plan", "--sweep", "last")]
    rows += [timed("show", "show", "last"), timed("report, again", "report", "last")]
    page = next(Path(os.environ["SWEEPBENCH_RUNS"]).glob("scale-*/report.html"))
    return [*rows, {"name": "report.html", "mib": round(page.stat().st_size / 2**20, 2)}]


def made(trials: int, steps: int) -> Path:
    """The suite of a finished sweep in SWEEPBENCH_RUNS."""
    from benchmarks.finished_sweep import finished_sweep, write_suite

    suite = write_suite(Path(os.environ["SWEEPBENCH_RUNS"]) / "scale.yaml", trials, steps=steps)
    finished_sweep(suite)
    return suite


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


def flow(trials: int, steps: int) -> list[dict[str, Any]]:
    """A whole flow over a sweep of made-up trials, and a resume of it with nothing to do."""
    command = [sys.executable, "-m", "benchmarks.made_up_flow", "--trials", str(trials), "--steps", str(steps)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    memory = {int(begun): mib for begun, mib in found["memory_mib"].items()}
    begin, end = min(memory, key=lambda trial: abs(trial - FROM)), max(memory)
    grown = round(memory[end] - memory[begin], 1)
    growth = {f"mib_at_{begin}": memory[begin], f"mib_at_{end}": memory[end], "grown_mib": grown, "limit_mib": GROWTH_MIB}
    return [
        {"name": "publish", **tenths(found["publish_ms"], SLOWER)},
        {"name": "flow", **tenths(found["cpu_ms"])},
        {"name": "flow memory", **growth, "met": grown <= GROWTH_MIB},
        timed("resume", "resume", "last"),
    ]


def tenths(cpu_ms: Sequence[float], limit: float | None = None) -> dict[str, Any]:
    """CPU milliseconds a trial, in the first tenth and the last. `limit`: how many times slower the last may be."""
    first, last = cpu_ms
    row = {"cpu_ms_first_tenth": first, "cpu_ms_last_tenth": last, "ratio": round(last / first, 2)}
    return row if limit is None else {**row, "limit_ratio": limit, "met": last <= limit * first}


if __name__ == "__main__":
    sys.exit(main())
