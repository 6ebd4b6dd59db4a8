"""What a person waits for before anything is measured: the listings, and a sweep until its first trial works.

    python benchmarks/bench_startup.py [--times 5]

Prints one JSON line for each command, the best of so many times. Of `sweep run`, in seconds from the start of the command: `process`, until
the first trial's process was started; `set_up`, until it began its own work, which on a CPU waits until the flow follows it; `measures`,
until its measured window began. `new`: in an empty folder of results, where Prefect and MLflow first create their databases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SYNTHETIC = ["run", "synthetic", "--profile", "smoke", "--pool", "cpu", "--set", "steps=20"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arguments in (["suites"], ["plan", "bridgetower", "--profile", "smoke"]):
            print(json.dumps({"name": f"sweep {arguments[0]}", "s": min(timed(arguments, folder / "none")[0] for _ in range(times))}))
        for kind, folders in (("new", [folder / str(number) for number in range(times)]), ("used", [folder / "0"] * times)):
            rows = [started(runs) for runs in folders]
            best = {key: min(row[key] for row in rows) for key in rows[0]}
            print(json.dumps({"name": f"sweep run, {kind} folder", **best}))
    return 0


def timed(arguments: list[str], runs: Path) -> tuple[float, float]:
    """(seconds that the command took, when it was started: Unix time, s). Raises CalledProcessError."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_", "SWEEPBENCH_"))}
    command, began, at = [sys.executable, "-m", "flows.cli", *arguments], time.monotonic(), time.time()
    subprocess.run(command, env={**kept, "SWEEPBENCH_RUNS": str(runs)}, capture_output=True, check=True)
    return time.monotonic() - began, at


def started(runs: Path) -> dict[str, float]:
    """Run a sweep of one trial in the folder of results; when what of it began, s from the start of the command."""
    before = set(runs.glob("*/trials/*"))
    whole, at = timed(SYNTHETIC, runs)
    (trial,) = set(runs.glob("*/trials/*")) - before
    records = [json.loads(line) for line in (trial / "journal.jsonl").read_text().splitlines()]
    attempts = [number for number, record in enumerate(records) if record["kind"] == "attempt"]
    first = records[: attempts[1]] if len(attempts) > 1 else records  # a disturbed trial is measured again
    phases = {record["name"]: record["t"] - at for record in first if record["kind"] == "phase"}
    return {"process": first[0]["t"] - at, "set_up": phases["start"], "measures": phases["measure"], "whole": whole}


if __name__ == "__main__":
    sys.exit(main())
