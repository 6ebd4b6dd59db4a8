"""A process ends with its parent: also where that was killed before its program had begun, and while it hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments import parent_death
from tests.cli_support import environment

DEADLINE_S = 60.0
# Starts the command through parent_death.py and is killed: once it has said that it runs, or between fork and exec of it
STARTS = """
import os, signal, sys, time
when, *command = sys.argv[1:]
me, (source, sink) = os.getpid(), os.pipe()
pid = os.fork()
if pid == 0:
    os.close(source)
    if when == "before":
        while os.getppid() == me:
            time.sleep(0.01)
    os.dup2(sink, 1)
    os.execv(sys.executable, [sys.executable, "-IS", command[0], str(me), *command[1:]])
print(pid, flush=True)
if when == "after":
    os.read(source, 1)
    print("begun", flush=True)
os.kill(me, signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_command_ends_with_the_process_that_started_it(when: str, tmp_path: Path) -> None:
    began = tmp_path / "began"
    program = f"import pathlib, time; pathlib.Path({str(began)!r}).touch(); print('x', flush=True); time.sleep(77)"
    command = [parent_death.__file__, sys.executable, "-c", program]
    done = subprocess.run([sys.executable, "-c", STARTS, when, *command], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, *begun = done.stdout.split()
    ended(int(pid))
    assert ("which started this one, has ended" in done.stderr) is (when == "before"), done.stderr
    assert (begun, began.exists()) == ((["begun"], True) if when == "after" else ([], False))


# A trial's process whose DataLoader's process hangs within a batch
LOADS = """
import os, sys, time
from types import SimpleNamespace
from experiments.components.data.loading import load
from experiments.parameters import TrainingParameters

class Hangs:
    def __getitem__(self, index):
        print(os.getpid(), flush=True)
        time.sleep(600)

context = SimpleNamespace(parameters=TrainingParameters(dataloader_workers=1), device_kind="cpu")
next(iter(load(Hangs(), iter(range(9)), context)))
"""


def test_a_process_of_a_loader_that_hangs_ends_with_its_trial() -> None:
    """It has the trial's sockets, so Ray would take the trial for alive."""
    trial = subprocess.Popen([sys.executable, "-c", LOADS], env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert trial.stdout is not None
        loader = int(trial.stdout.readline())
        assert loader in {child.pid for child in psutil.Process(trial.pid).children()}
        trial.kill()
        ended(loader)
    finally:
        os.killpg(trial.pid, signal.SIGKILL)
        trial.wait()


def ended(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        assert psutil.wait_procs([process], timeout=DEADLINE_S)[1] == [] or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return
