"""The launcher of embedded pools: each trial is a process of this machine and runs Ray Train in local mode."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cluster.attempt_log import heading
from cluster.journal.lines import Record
from cluster.launchers import Launch, LaunchError, Status, processes
from cluster.launchers.command import ENTRY, WARM_DEVICES, trial_command, trial_environment
from cluster.launchers.template import ForkedTrial, Template, TemplateError, templates_of_launcher
from cluster.launchers.variant import Variant, variant_of
from cluster.pools.pool import Pool
from cluster.trial_layout import LOG
from experiments.trial import Trial


class LocalLauncher:
    """Runs trials as processes of this machine. Each has its own session and writes to log.txt, so it outlives this process.

    With the pool's `start: warm` they are forked from a template process that has made their imports; see cluster/worker/template.py.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._children: dict[str, subprocess.Popen[bytes] | ForkedTrial] = {}
        self._templates, self._shares_templates = templates_of_launcher()

    def prepare(self, trial: Trial, trial_dir: Path) -> Template | None:
        """Start the template that the trial is to be forked from, and return it at once: its imports take seconds. `start` takes it up.

        None where the trial is to be a fresh process, or no template can be started.
        """
        with suppress(OSError, LaunchError):  # `start` will meet it too, and say so
            variant = variant_of(trial, self.pool)
            if self._is_forked(trial, variant, trial_command(trial_dir, 1)):
                return self._templates.get(variant, trial, trial_environment(trial, variant.tree), trial_dir / LOG)
        return None

    def free_number(self, trial: Trial, trial_dir: Path, attempt: int) -> int:
        return attempt  # all that an attempt leaves lies in the trial's folder

    def starting(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        return Launch(launcher="local", key=trial.key, attempt=attempt, id="", starting=True)

    def end_earlier(self, trial: Trial) -> None:
        processes.end_all(trial.key)  # their mark is the trial's, whatever their attempt

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        variant = variant_of(trial, self.pool)
        arguments = trial_command(trial_dir, attempt, told=variant.write(trial, trial_dir))
        environment = trial_environment(trial, variant.tree)
        with open(trial_dir / LOG, "ab") as log:
            log.write(heading(attempt).encode())
        start = (arguments, environment, trial_dir / LOG)
        child = self._forked(trial, variant, *start) or self._fresh(variant, *start)
        self._children[trial.key] = child
        return Launch(launcher="local", key=trial.key, attempt=attempt, id=str(child.pid), born=processes.start_time(child.pid))

    def _fresh(self, variant: Variant, arguments: Sequence[str], environment: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
        """A new process. Raises LaunchError."""
        with open(log_path, "ab") as log:
            try:
                return subprocess.Popen(
                    [variant.python, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environment},
                    start_new_session=True,
                    pass_fds=variant.inherited,
                )
            except OSError as error:
                raise LaunchError(f"pool {self.pool.name}: cannot start {variant.python}: {error}") from error

    def _forked(
        self, trial: Trial, variant: Variant, arguments: list[str], environment: Mapping[str, str], log: Path, /
    ) -> ForkedTrial | None:
        """A process forked from a template; None where the pool or the trial wants a fresh one, or no template can be had."""
        if not self._is_forked(trial, variant, arguments):
            return None
        template: Template | None = None
        try:
            template = self._templates.get(variant, trial, environment, log)
            return template.fork(arguments[len(ENTRY) :], environment, log)
        except (TemplateError, OSError) as error:
            self._templates.drop(template)
            processes.end_all(trial.key)  # what it may have forked before it fell silent
            with open(log, "a") as file:
                file.write(f"a fresh process, since none could be forked from the template: {error}\n")
            return None

    def _is_forked(self, trial: Trial, variant: Variant, arguments: list[str]) -> bool:
        """Whether the pool and the trial want a process that is forked from a template, and the trial's code can be one."""
        wanted = self.pool.start != "fresh" and trial.device in WARM_DEVICES and arguments[: len(ENTRY)] == ENTRY
        return wanted and variant.has("template")

    def status(self, launch: Launch) -> Status:
        if launch.starting:
            return Status(running=processes.first_of(launch.key) is not None)
        child = self._children.get(launch.key)
        if child is not None and str(child.pid) == launch.id:
            code = child.poll()
            if code is not None or isinstance(child, subprocess.Popen) or child.template.running:
                return Status(running=code is None, exit_code=code, message=_exit_message(code))
        running = processes.alive(int(launch.id), launch.born)
        return Status(running=running, message=None if running else "the process is gone; its parent did not see it end")

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        """Nothing to copy: the trial writes into its folder itself."""

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        """Nothing to copy: the flow writes into the trial's folder itself."""

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        whole = self.find_started(launch) if launch.starting else launch
        if whole is not None and self.status(whole).running:
            with suppress(ProcessLookupError):
                os.kill(int(whole.id), signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self.status(whole).running and time.monotonic() < deadline:
                time.sleep(0.05)
        processes.end_all(launch.key)
        child = self._children.pop(launch.key, None)
        if isinstance(child, subprocess.Popen) or (child is not None and child.template.running):
            child.wait(timeout=grace_s)

    def stop_lost(self, trial: Trial, trial_dir: Path, attempt: int) -> None:
        processes.end_all(trial.key)

    def find_started(self, launch: Launch) -> Launch | None:
        first = processes.first_of(launch.key)
        return first and launch.model_copy(update={"id": str(first.pid), "born": first.born, "starting": False})

    def find_lost(self, trial: Trial, trial_dir: Path, begun: Record) -> Launch:
        born = next((process.create_time() for process in processes.of_trial(trial.key) if process.pid == begun["pid"]), None)
        return Launch(launcher="local", key=trial.key, attempt=begun["attempt"], id=str(begun["pid"]), born=born)

    def log(self, launch: Launch, trial_dir: Path) -> str:
        path = trial_dir / LOG
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        if not self._shares_templates:
            self._templates.close()


def _exit_message(code: int | None) -> str | None:
    if code is None or code == 0:
        return None
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
