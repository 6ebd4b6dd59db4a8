"""What ends the trial of a bisection that was killed, and what is left of it when nothing was."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster.process_marks import MARK
from cluster.process_variables import variables
from tasks.nightly.bisect_guard import guarded
from tests.cli_support import environment
from tests.process_support import command_of

DEADLINE_S = 60.0

# A command that runs a trial (KEY), which starts a process in a session of its own, and waits for it within the guard
COMMAND = """
import os, subprocess, sys
from tasks.nightly.bisect_guard import guarded
with guarded(sys.argv[1]):
    trial = "import subprocess, time; print(subprocess.Popen(['sleep', '77'], start_new_session=True).pid, flush=True); time.sleep(77)"
    marked = {**os.environ, sys.argv[2]: sys.argv[1]}
    subprocess.Popen([sys.executable, "-c", trial], env=marked, start_new_session=True).wait()
"""


@pytest.mark.parametrize("group", [False, True])
def test_a_killed_command_leaves_no_process_of_its_trial(group: bool, tmp_path: Path) -> None:
    """`group`: all of the command's process group is killed, as a terminal or a container's `kill -9 -PID` does."""
    key, other_key = secrets.token_hex(8), secrets.token_hex(8)
    other = subprocess.Popen(["sleep", "77.25"], env={MARK: other_key}, start_new_session=True)
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, key, MARK],
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert command.stdout is not None
        left = psutil.Process(int(command.stdout.readline()))
        trial = next(child for child in psutil.Process(command.pid).children() if variables(child).get(MARK) == key)
        assert variables(left)[MARK] == key
        (os.killpg if group else os.kill)(command.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs([left, trial], timeout=DEADLINE_S)
        assert {process.pid for process in gone} == {left.pid, trial.pid} and not alive
        assert other.poll() is None, "another trial runs on"
    finally:
        for process in (command, other):
            process.kill()
            process.wait()


def test_the_guard_ends_with_its_block() -> None:
    here = psutil.Process()
    before = {child.pid for child in here.children()}
    with guarded(secrets.token_hex(8)):
        [guard] = [child for child in here.children() if child.pid not in before]
        assert command_of(guard)[1:3] == ["-m", "tasks.nightly.bisect_guard"]
    assert not guard.is_running()


@pytest.mark.parametrize("theirs", ["tasks.py", "psutil.py"])
def test_the_guard_starts_in_a_folder_with_modules_of_the_same_names(theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / theirs).write_text("raise SystemExit('a file of the folder where the command is given')")
    monkeypatch.chdir(tmp_path)
    key = secrets.token_hex(8)
    trial = subprocess.Popen(["sleep", "77"], env={MARK: key}, start_new_session=True)
    try:
        with guarded(key):
            pass  # its pipe is closed, as by the end of the command
        assert trial.wait(DEADLINE_S) == -signal.SIGKILL
    finally:
        trial.kill()
        trial.wait()
