"""Three weeks of nights on this machine's CPU, one after the other, with a slow-down planted in the code.

    python -m benchmarks.nights_cpu --out docs/results/nightly-cpu --work /tmp/nights

Everything is real but the dates: each night is `sweep nightly cpu --date ...` in a scratch clone of this repository, its trials are real
processes, its history is MLflow's, its message is received by a webhook on loopback. On night `--plant` a commit in the clone makes the
synthetic workload normalise its inputs, which is real work; nobody tells the nights. At the end `sweep bisect` looks for the commit.
Given again after an interruption it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
CELL = "synthetic"
DEFINITION = """nightly: cpu
description: A small network on the CPU of this machine, three weeks of nights compressed in time
cells:
  - {suite: synthetic, profile: smoke, set: {steps: 2000}, metrics: [step_time_p05_s, peak_memory_bytes], value: 2}
canary: {suite: canary, profile: smoke, set: {steps: 2000}, metrics: [step_time_p05_s]}
repeats: 2
looks: [4]
budget: 12m
notify: [custom-webhook/nightly]
"""
BEFORE = 'functional.cross_entropy(model(batch["vectors"]), batch["classes"])'
AFTER = """functional.cross_entropy(model(normalised(batch["vectors"])), batch["classes"])"""
FUNCTION = '''

def normalised(vectors: torch.Tensor) -> torch.Tensor:
    """Each input with mean 0 and standard deviation 1."""
    return (vectors - vectors.mean(dim=1, keepdim=True)) / vectors.std(dim=1, keepdim=True)
'''


def main() -> None:
    options = _options()
    work: Path = options.work.resolve()
    clone, runs = work / "clone", work / "runs"
    if not clone.exists():
        _git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
        _git(clone, "config", "user.name", "nights")
        _git(clone, "config", "user.email", "nights@localhost")
    (work / "extra" / "nightly").mkdir(parents=True, exist_ok=True)
    (work / "extra" / "nightly" / "cpu.yaml").write_text(DEFINITION)
    os.environ.update(SWEEPBENCH_RUNS=str(runs), SWEEPBENCH_EXTRA=str(work / "extra"), OMP_NUM_THREADS="1")
    from flows.cli.run_sweep import prepare_environment
    from flows.runtime.prefect_server import own_server

    prepare_environment()
    with _webhook(work / "received.jsonl") as url, own_server() as api:
        os.environ["PREFECT_API_URL"] = api
        _block(url)
        first = date.fromisoformat(options.first)
        for number in range(1, options.nights + 1):
            if number == options.plant:
                _plant(clone)
            night = (first + timedelta(days=number - 1)).isoformat()
            done = _sweep(clone, "nightly", "cpu", "--date", night)
            print(f"night {number} {night}: exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        bisection = _sweep(clone, "bisect", CELL, f"HEAD~{1 + options.after}", "HEAD", "--name", "cpu", "--json")
        (work / "bisect.json").write_text(bisection.stdout)
        print(bisection.stderr + bisection.stdout, flush=True)
    _results(runs, work, options.out, first + timedelta(days=options.plant - 1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where reports, figures and step times go")
    parser.add_argument("--work", type=Path, required=True, help="scratch folder: clone, runs, what the webhook received")
    parser.add_argument("--first", default="2026-11-01")
    parser.add_argument("--nights", type=int, default=21)
    parser.add_argument("--plant", type=int, default=15, help="the night before which the commit is made")
    parser.add_argument("--after", type=int, default=2, help="commits without effect that follow it, for the bisection")
    return parser.parse_args()


def _plant(clone: Path) -> None:
    path = clone / "experiments" / "workloads" / "synthetic.py"
    text = path.read_text()
    if AFTER in text:
        return
    assert text.count(BEFORE) == 1, "the workload is no longer the one this was written for"
    path.write_text(text.replace(BEFORE, AFTER) + FUNCTION)
    _git(clone, "commit", "--quiet", "-am", "Synthetic: normalise the inputs")
    for number in range(2):
        (clone / f"note-{number}.txt").write_text("A change that measures nothing.\n")
        _git(clone, "add", f"note-{number}.txt")
        _git(clone, "commit", "--quiet", "-m", f"A note, number {number + 1}")


def _sweep(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


def _block(url: str) -> None:
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    body = {"subject": "{{subject}}", "text": "{{body}}"}
    CustomWebhookNotificationBlock(name="nightly", url=url, json_data=body).save("nightly", overwrite=True)


@contextmanager
def _webhook(path: Path) -> Iterator[str]:
    """A webhook on loopback that keeps what it is sent, a line each."""

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with open(path, "ab") as file:
                file.write(body + b"\n")
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/nightly"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _results(runs: Path, work: Path, out: Path, planted: date) -> None:
    """The reports of the planted night and of the last, the figures, the message, and every measured step."""
    out.mkdir(parents=True, exist_ok=True)
    nights = sorted(path.parent for path in (runs / "nightly" / "cpu").glob("*/night.json"))
    for folder, name in ((runs / "nightly" / "cpu" / planted.isoformat(), "found"), (nights[-1], "last")):
        shutil.copy(folder / "report.html", out / f"{name}.html")
    for figure in (nights[-1] / "figures").glob("*-step_time_p05_s.*"):
        cell = json.loads((nights[-1] / "night.json").read_text())["cells"]
        name = next(each for each in cell if figure.name.startswith(each["cell"]) and each["role"] != "twin")
        shutil.copy(figure, out / f"{name['suite']}-{name['role']}{figure.suffix}")
    received = [json.loads(line) for line in (work / "received.jsonl").read_text().splitlines()]
    mine = next(item for item in received if planted.isoformat() in item["subject"])
    text = mine["text"].replace(str(runs), "runs")
    (out / "notification.txt").write_text(f"{mine['subject']}\n\n{text}")
    pq.write_table(_steps(runs), out / "steps.parquet", compression="zstd", compression_level=19)


def _steps(runs: Path) -> pa.Table:
    """Every measured step of every night: date, cell, role, round, step time in whole microseconds."""
    columns: dict[str, list[object]] = {name: [] for name in ("date", "suite", "width", "role", "round")}
    times = []
    for path in sorted(runs.glob("nightly-*/trials/*/steps.parquet")):
        trial = json.loads((path.parent / "trial.json").read_text())
        table = pq.read_table(path, columns=["measured", "total_s"])
        measured = table["total_s"].to_numpy()[table["measured"].to_numpy(zero_copy_only=False)]
        labels = trial["labels"]
        row = (labels["night.date"], trial["suite"], trial["parameters"]["width"], labels["night.role"], trial["repeat"])
        for name, value in zip(columns, row, strict=True):
            columns[name] += [value] * len(measured)
        times.append(np.round(measured * 1e6).astype(np.uint32))
    data = {
        name: pa.array(values).dictionary_encode() if name != "round" else pa.array(values, pa.uint8()) for name, values in columns.items()
    }
    return pa.table({**data, "step_us": np.concatenate(times)})


if __name__ == "__main__":
    main()
