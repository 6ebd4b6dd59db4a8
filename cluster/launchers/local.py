"""The launcher of embedded pools: each trial is a subprocess on this machine and runs Ray Train in local mode."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from cluster.launchers import Launch, LaunchError, Status, processes
from cluster.launchers.command import trial_command, trial_environment
from cluster.pools.pool import Pool
from cluster.trial_layout import LOG
from experiments.trial import Trial


class LocalLauncher:
    """Runs trials as subprocesses. Each has its own session and writes to log.txt, so it outlives this process."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        python = self.pool.python or sys.executable
        arguments = [python, *trial_command(trial_dir, attempt)]
        with open(trial_dir / LOG, "ab") as log:
            log.write(f"--- attempt {attempt} at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n".encode())
            log.flush()
            try:
                child = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **trial_environment(trial)},
                    start_new_session=True,
                )
            except OSError as error:
                raise LaunchError(f"pool {self.pool.name}: cannot start {python}: {error}") from error
        self._children[trial.key] = child
        try:
            born: float | None = psutil.Process(child.pid).create_time()
        except psutil.NoSuchProcess:  # over already
            born = None
        return Launch(launcher="local", key=trial.key, attempt=attempt, id=str(child.pid), born=born)

    def status(self, launch: Launch) -> Status:
        child = self._children.get(launch.key)
        if child is not None and str(child.pid) == launch.id:
            code = child.poll()
            return Status(running=code is None, exit_code=code, message=_exit_message(code))
        running = processes.alive(int(launch.id), launch.born)
        return Status(running=running, message=None if running else "the process is gone; its parent did not see it end")

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        """Nothing to copy: the trial writes into its folder itself."""

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        """Nothing to copy: the flow writes into the trial's folder itself."""

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        if self.status(launch).running:
            with suppress(ProcessLookupError):
                os.kill(int(launch.id), signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self.status(launch).running and time.monotonic() < deadline:
                time.sleep(0.05)
        processes.end_all(launch.key)
        child = self._children.pop(launch.key, None)
        if child is not None:
            child.wait(timeout=grace_s)

    def log(self, launch: Launch, trial_dir: Path) -> str:
        path = trial_dir / LOG
        return path.read_text(errors="replace") if path.exists() else ""


def _exit_message(code: int | None) -> str | None:
    if code is None or code == 0:
        return None
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
