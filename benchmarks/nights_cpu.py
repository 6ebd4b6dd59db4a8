"""Three weeks of nights on this machine's CPU, one after the other, with a slow-down planted in the code and a co-tenant on three nights.

    python -m benchmarks.nights_cpu --out docs/results/nightly-cpu --work /tmp/nights

Everything is real but the dates: each night is `sweep nightly cpu --date ...` in a scratch clone of this repository, its trials are real
processes, its history is MLflow's, its message is received by a webhook on loopback. Before each night three commits are made in the
clone: one changes a comment in the workload's file, two a note. Before one night the first of them makes each input of the workload
cost more, which is real work in one of the two cells; nobody tells the nights. On three nights processes that compute as fast as they
can run beside them. The nights themselves find the slow-down, measure it in pairs of commits and look for the commit. Given again after
an interruption it goes on where it was.

The page, its figures and its data are written at the end (nights_cpu_page.py), and whatever is missing in them is said there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks import nights_cpu_page
from benchmarks.co_tenant import co_tenant

ROOT = Path(__file__).resolve().parents[1]
WORKLOAD = Path("experiments") / "workloads" / "synthetic.py"
DEFINITION = """nightly: cpu
description: A small network on the CPU of this machine with cheap and with dear inputs, three weeks of nights compressed in time
cells:
  - {suite: synthetic, profile: smoke, set: {steps: 800, width: 256}, metrics: [throughput], value: 2}
  - {suite: synthetic, profile: smoke, set: {steps: 800, width: 64, input_cost: 1000}, metrics: [throughput], value: 1}
canary: {suite: canary, profile: smoke, set: {steps: 800, width: 256, batch_size: 64}, metrics: [throughput]}
repeats: 2
looks: [4]
pairs: [3, 5, 8, 12]
budget: 8m
bisect_budget: 5m
notify: [custom-webhook/nightly]
"""
CO_TENANTS = {8: "all night", 11: "from 20 s on", 20: "in spells of 5 s"}
BEFORE = "    for _ in range(multiplications):\n"
AFTER = "    for _ in range(multiplications + multiplications // 8):\n"


def main() -> None:
    options = _options()
    work: Path = options.work.resolve()
    clone, runs = _clone(work), work / "runs"
    (work / "extra" / "nightly").mkdir(parents=True, exist_ok=True)
    (work / "extra" / "nightly" / "cpu.yaml").write_text(DEFINITION)
    os.environ.update(SWEEPBENCH_RUNS=str(runs), SWEEPBENCH_EXTRA=str(work / "extra"), OMP_NUM_THREADS="1")
    from flows.runtime.command_environment import prepare_environment
    from flows.runtime.prefect_server import own_server

    prepare_environment()
    log = NightLog(work / "nights.jsonl")
    with _webhook(work / "received.jsonl") as url, own_server() as server:
        os.environ["PREFECT_API_URL"] = server.wait()
        _block(url)
        began = log.records[0]["date"] if log.records else (datetime.now(UTC).date() - timedelta(days=options.nights - 1)).isoformat()
        for number in range(1, options.nights + 1):
            night = (date.fromisoformat(options.first or began) + timedelta(days=number - 1)).isoformat()
            if number not in log.ended:
                _night(clone, log, number, night, plant=number == options.plant)
    nights_cpu_page.write(options.out, work, _git(clone, "rev-parse", "origin/HEAD"))


class NightLog:
    """work/nights.jsonl: two records a night, its commits before it and how it went after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add(self, **record: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")
        self.records.append(record)

    @property
    def committed(self) -> set[int]:
        return {record["night"] for record in self.records if "commit" in record}

    @property
    def last_commit(self) -> str | None:
        return next((record["commit"] for record in reversed(self.records) if "commit" in record), None)

    @property
    def ended(self) -> set[int]:
        return {record["night"] for record in self.records if "seconds" in record}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the page, its figures and its data go")
    parser.add_argument("--work", type=Path, required=True, help="scratch folder: clone, runs, what the webhook received")
    parser.add_argument("--first", help="date of the first night; if not given, the last one is today")
    parser.add_argument("--nights", type=int, default=21, help="with fewer the page says what was not reached")
    parser.add_argument("--plant", type=int, default=15, help="the night before which the slow-down is committed")
    return parser.parse_args()


def _clone(work: Path) -> Path:
    clone = work / "clone"
    if not clone.exists():
        _git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
        _git(clone, "config", "user.name", "nights")
        _git(clone, "config", "user.email", "nights@localhost")
    return clone


def _night(clone: Path, log: NightLog, number: int, night: str, *, plant: bool) -> None:
    """Commit, then run the night; with a co-tenant where it is to have one."""
    if number not in log.committed:
        _git(clone, "reset", "--quiet", "--hard", log.last_commit or "origin/HEAD")  # what an interrupted run may have committed
        log.add(night=number, date=night, **_commit(clone, number, plant=plant))
    began = time.monotonic()
    with co_tenant(CO_TENANTS.get(number)):
        done = _sweep(clone, "nightly", "cpu", "--date", night)
    said = done.stderr.strip().splitlines()[-1:]
    print(f"night {number} {night}: exit status {done.returncode}, {time.monotonic() - began:.0f} s: {' '.join(said)}", flush=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"night {number} failed:\n{done.stdout}{done.stderr}")
    log.add(night=number, date=night, seconds=time.monotonic() - began, status=done.returncode, co_tenant=CO_TENANTS.get(number))


def _commit(clone: Path, number: int, *, plant: bool) -> dict[str, Any]:
    """The night's three commits. Returns the newest and, where it is to `plant` it, the one that makes inputs cost more."""
    path = clone / WORKLOAD
    text = path.read_text().rstrip("\n").rsplit("\n# night", 1)[0]
    if plant:
        assert text.count(BEFORE) == 1, "the workload is no longer the one that this was written for"
        text = text.replace(BEFORE, AFTER)
    path.write_text(f"{text}\n# night {number}\n")
    _git(clone, "commit", "--quiet", "-am", "Synthetic: inputs cost more" if plant else f"Synthetic: comment {number}")
    changed = _git(clone, "rev-parse", "HEAD")
    for note in (1, 2):
        (clone / f"note-{note}.txt").write_text(f"Night {number}: a change that measures nothing.\n")
        _git(clone, "add", f"note-{note}.txt")
        _git(clone, "commit", "--quiet", "-m", f"Note {note} of night {number}")
    return {"commit": _git(clone, "rev-parse", "HEAD"), **({"planted": changed} if plant else {})}


def _sweep(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


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


if __name__ == "__main__":
    main()
