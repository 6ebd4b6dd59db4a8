"""Other work beside a trial: its figures say so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cluster.journal.journal import read_journal
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from cluster.sampler.state_file import read_records, read_state
from experiments.config.paths import REPOSITORY
from experiments.device_state import host_limits, measured_window
from experiments.trial import Outcome
from tests.contracts import make_trial, result_of, wait

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

# Uses a core, and writes its CPU time (s) at each Unix time; ends with the test's process
BUSY = """
import os, sys, time
parent = os.getppid()
with open(f"{sys.argv[1]}-{os.getpid()}", "w", buffering=1) as file:
    while os.getppid() == parent:
        file.write(f"{time.time()} {time.process_time()}\\n")
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass
"""


@contextmanager
def co_tenants(folder: Path, count: int) -> Iterator[list[Path]]:
    """Processes that are not the trial's. They write what CPU time they got into the files."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY, str(folder / "busy")]) for _ in range(count)]
    try:
        yield [folder / f"busy-{process.pid}" for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def used_between(log: Path, begin: float, end: float) -> float:
    """CPU seconds that a co-tenant used in that time."""
    whole = [line.split() for line in log.read_text().splitlines()[:-1]]
    times, used = np.array(whole, float).T
    return float(np.interp(end, times, used) - np.interp(begin, times, used))


def test_processes_that_use_the_cores_beside_a_cpu_trial_are_named_with_what_they_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(REPOSITORY / "tests" / "workloads_for_tests"))
    folder = tmp_path / "trial"
    trial = make_trial(folder, "fa01700000000001", "faulty", steps=100, step_sleep_s=0.02, threads=1)
    cores = os.cpu_count() or 1
    launcher = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    with co_tenants(tmp_path, cores) as logs:
        launch = launcher.start(trial, folder, 1)
        wait(launcher, launch)
    result = result_of(folder)
    assert result.outcome is Outcome.OK, launcher.log(launch, folder)
    steps = read_journal(folder / "journal.jsonl").steps
    window = measured_window(steps)
    assert window is not None
    limit = host_limits("cpu", cores).others
    share = sum(used_between(log, *window) for log in logs) / (cores * (window[1] - window[0]))
    assert share > 1.2 * limit, "the co-tenants did not get the cores: nothing to notice"

    measured = result.summary["cpu_others_share"]
    assert measured is not None and 0.9 * share - 0.02 < measured <= 1.0, "the kernel counts by ticks; others may use the machine too"
    assert result.disturbed is not None
    assert f"other processes used {100 * measured:.3g} % of the CPU (limit {100 * limit:.3g} %): " in result.disturbed
    assert re.search(r"\): .+ pid \d+ [\d.]+ s", result.disturbed), "and who used them most"
    looks = [record["busiest"]["processes"] for record in read_records(folder / "device_state.jsonl", 1) if "busiest" in record]
    assert {log.name for log in logs} & {f"busy-{process['pid']}" for look in looks for process in look}, "others may use them too"
    assert result.summary["state_coverage"] is not None and result.summary["state_coverage"] > 0
    state = read_state(folder, 1, steps)
    assert state is not None and (state.disturbed, state.cpu_others_share) == (result.disturbed, measured), "from the file, as any report"
