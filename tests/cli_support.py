"""Run the command line as a user does: another process, its own runs folder, real Prefect, Ray Train and MLflow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.journal.journal import read_journal
from experiments.config.paths import runs_root
from tasks.sweep.store import SweepStore, list_sweeps

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 240.0


def environment(**more: str) -> dict[str, str]:
    """What the command sees: this test's runs folder, the suites and workloads made for tests."""
    extra = str(ROOT / "tests" / "workloads_for_tests")
    return {**os.environ, "SWEEPBENCH_RUNS": str(runs_root()), "SWEEPBENCH_EXTRA": extra, "PYTHONPATH": str(ROOT), **more}


Through = Callable[[list[str]], list[str]]


def start(*arguments: str, folder: Path, through: Through = list, **more: str) -> subprocess.Popen[str]:
    """Start `sweep ARGUMENTS` in a process group of its own, output in one pipe. `through`: what starts a command elsewhere."""
    command = through([sys.executable, "-m", "flows.cli", *arguments])
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509 - the tests start no threads of their own
    )


def heed_ctrl_c() -> None:
    """A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that: tests may be started so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def sweep(*arguments: str, folder: Path, through: Through = list, **more: str) -> tuple[int, str]:
    """Run `sweep ARGUMENTS` to its end. Returns exit status and output."""
    process = start(*arguments, folder=folder, through=through, **more)
    text, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, text


def sweep_json(*arguments: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments, "--json"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def until(condition: Callable[[], Any], process: subprocess.Popen[str] | None) -> Any:
    """Wait until `condition` gives something true, while the process runs, if any."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode} before that:\n{process.communicate()[0]}")
        time.sleep(0.05)
    raise AssertionError("it did not come to that in time")


def only_store(root: Path | None = None) -> SweepStore | None:
    """The one sweep of this test, None before it is planned. `root`: another folder than the test's runs."""
    ids = list_sweeps(root)
    return SweepStore(ids[0], root) if ids else None


def running_step(number: int, step: int = 3, attempt: int = 1, root: Path | None = None) -> Callable[[], SweepStore | None]:
    """Gives the sweep once trial `number` has made `step` steps of an attempt."""

    def there() -> SweepStore | None:
        store = only_store(root)
        if store is None:
            return None
        journal = read_journal(store.trial_dir(store.load_plan().trials[number].key) / "journal.jsonl")
        return store if journal.attempt == attempt and len(journal.steps) >= step else None

    return there
