"""What an earlier trial left on a node is ended; what belongs to a running one is not. With real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest

from cluster.process_marks import MARK, NO_TRIAL, POOL_MARK
from cluster.worker import leftovers

POOL, KEY = f"pool-{os.getpid()}", "1ef7000000000001"
_WAIT = "print('runs', flush=True); time.sleep(600)"
_PARENT = f"""
import os, subprocess, sys, time
python, pool = sys.argv[1:]
variables = {{**os.environ, {MARK!r}: {KEY!r}, {POOL_MARK!r}: pool}}
child = subprocess.Popen(["ray::RayTrainWorker", "-c", "import time; time.sleep(600)"], executable=python, env=variables)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POOL_MARK, POOL)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process under a name of its own, and returns once it runs Python: only then are its variables its own."""
    with ExitStack() as ends:

        def start(name: str, code: str, *arguments: str, **marks: str) -> subprocess.Popen[str]:
            variables = {**os.environ, POOL_MARK: POOL, **marks}
            command = [name, "-c", code, *arguments]
            process = subprocess.Popen(command, executable=sys.executable, env=variables, stdout=subprocess.PIPE, text=True)
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        yield start


@pytest.mark.parametrize("name", ["python", "ray::RayTrainWorker"])
def test_what_a_trial_left_is_ended_whatever_it_is_called(started: Callable[..., subprocess.Popen[str]], name: str) -> None:
    """A child that a worker of Ray forked has that one's name, and holds its journal's lock, after the worker was killed."""
    left = started(name, f"import time; {_WAIT}", **{MARK: KEY})
    assert left.stdout is not None and left.stdout.readline() == "runs\n"
    [note] = leftovers.end()
    assert note.startswith(f"ended process {left.pid} ({name} -c ") and note.endswith(f", which trial {KEY} had left on this node")
    left.wait(60)  # which `leftovers` has done already: it is a child of this process


@pytest.mark.parametrize(("parent", "mark"), [("raylet", KEY), ("ray::JobSupervisor", KEY), ("python", NO_TRIAL)])
def test_what_descends_from_ray_or_a_template_runs(started: Callable[..., subprocess.Popen[str]], parent: str, mark: str) -> None:
    above = started(parent, _PARENT, sys.executable, POOL, **{MARK: mark, POOL_MARK: "another pool" if mark == KEY else POOL})
    assert above.stdout is not None
    child = psutil.Process(int(above.stdout.readline()))
    try:
        assert leftovers.end() == [] and child.is_running()
    finally:
        child.kill()


@pytest.mark.parametrize("marks", [{POOL_MARK: "another pool", MARK: KEY}, {MARK: NO_TRIAL}, {}])
def test_what_is_of_another_pool_or_of_no_trial_stays(started: Callable[..., subprocess.Popen[str]], marks: dict[str, str]) -> None:
    other = started("python", f"import time; {_WAIT}", **marks)
    assert other.stdout is not None and other.stdout.readline() == "runs\n"
    assert leftovers.end() == [] and other.poll() is None
