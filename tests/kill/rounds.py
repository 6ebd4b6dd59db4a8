"""One round: a sweep, kill -9 of one process at a random moment, what heals it, and what then does not hold."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import psutil

from cluster.process_variables import variables
from cluster.stack.settings import Settings
from experiments.config.paths import REPOSITORY
from tasks.sweep.store import SweepStore, list_sweeps
from tests.kill import check, victims
from tests.kill.command_line import shown
from tests.kill.servers import bring_up
from tests.stack_support import Stack

SUITE = Path(__file__).with_name("kill.yaml")
STEPS = 240  # of each trial, warm-up included: as the suite says
MARK = "SWEEPBENCH_KILL_ROUND"  # every process that a round's commands start inherits it
_DEADLINE_S = 600.0
_GONE_S = 30.0  # for the last processes to end: a shell by which Ray watches a job sleeps a second, a sampler releases clocks
_POLL_S = 0.005


@dataclass(frozen=True)
class Draw:
    """What is decided of a round before it. Times in s from the command's start.

    `window_s`: from when to when there is such a process, in a sweep that nobody disturbs.
    """

    number: int
    seed: int
    target: str
    window_s: tuple[float, float]
    new: bool  # the databases are not there yet
    whole: bool  # of a server every process is killed, not only its first
    pause_s: float  # from the kill of a server to `make up`


@dataclass
class Round:
    """What happened: a line of the record."""

    number: int
    seed: int
    servers: bool
    target: str
    new: bool
    whole: bool
    moment_s: float | None = None  # None: nothing was killed, since the sweep ended before
    window_s: tuple[float, float] = (0.0, 0.0)
    killed: list[str] = field(default_factory=list)
    ended_before: int = 0  # trials that had ended by then
    first_status: int | None = None
    resume_status: int | None = None
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def fired(self) -> bool:
        return self.moment_s is not None

    def line(self) -> dict[str, Any]:
        return asdict(self)


def draw(number: int, seed: int, windows: dict[str, tuple[float, float]], *, new_allowed: bool) -> Draw:
    """Round `number` of the run with this seed. The targets, for which there are windows, take turns, so that each has its share."""
    rng = random.Random(f"{seed}/{number}")
    new = new_allowed and rng.random() < 0.25
    target = list(windows)[number % len(windows)]
    return Draw(number, seed, target, windows[target], new, rng.random() < 0.5, rng.uniform(0, 5))


class RoundRun:
    """The processes and folders of one round."""

    def __init__(self, drawn: Draw, folder: Path, stack: Stack | None) -> None:
        """`folder`: for logs, and for runs/ where there is no stack."""
        self._draw, self._stack = drawn, stack
        self._folder = folder
        self._runs = stack.settings.runs if stack else folder / "runs"
        self._rng = random.Random(f"{drawn.seed}/{drawn.number}/moment")
        self._mark = f"{drawn.seed}-{drawn.number}-{os.getpid()}"
        self.record = Round(drawn.number, drawn.seed, stack is not None, drawn.target, drawn.new, drawn.whole, window_s=drawn.window_s)
        self._before = set(list_sweeps(self._runs))

    @property
    def _servers(self) -> Settings | None:
        return self._stack.settings if self._stack else None

    def run(self) -> Round:
        begun = time.monotonic()
        try:
            self._run()
        except Exception as error:
            self.record.violations.append(f"{type(error).__name__}: {error}")
        finally:
            self._end_what_is_left()
            self.record.seconds = time.monotonic() - begun
        return self.record

    def undisturbed(self, targets: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Run the sweep without a kill; returns the window of each target. Raises AssertionError where something does not hold."""
        begun, seen = time.monotonic(), dict[str, list[float]]()
        with self._command("first", "run", str(SUITE), *self._pool) as process:
            flow = psutil.Process(process.pid)
            while (status := process.poll()) is None:
                for target in targets:
                    if victims.find(target, flow, self._store(), self._servers, True, self._rng):
                        seen.setdefault(target, []).append(time.monotonic() - begun)
                time.sleep(0.1)
        store = self._store()
        assert status == 0 and store is not None, (self._folder / "first.log").read_text()
        found = check.violations(store, check.Finished(), steps=STEPS)
        assert not found, found
        return {target: (min(seen[target]), max(seen[target])) for target in targets}

    @property
    def _pool(self) -> list[str]:
        return ["--pool", "local"] if self._stack else []

    def _run(self) -> None:
        with self._command("first", "run", str(SUITE), *self._pool) as process:
            self._kill(psutil.Process(process.pid), process)
            if self._draw.target in victims.SERVERS and self._stack is not None and self.record.fired:
                time.sleep(self._draw.pause_s)
                bring_up(self._stack)
            self.record.first_status = process.wait(_DEADLINE_S)
        if self._draw.target == "flow" and self.record.first_status in (0, 1):
            self.record.moment_s = None  # it had ended by itself just before
        if not self.record.fired:
            return
        self._judge_first()
        self._heal()

    def _kill(self, flow: psutil.Process, process: subprocess.Popen[bytes]) -> None:
        """At a moment drawn evenly over the window; again later where there is no such process then."""
        begun = time.monotonic()
        after, end = self._draw.window_s
        while after < end:
            after = self._rng.uniform(after, end)
            while time.monotonic() - begun < after:
                if process.poll() is not None:
                    return
                time.sleep(_POLL_S)
            store = self._store()
            found = victims.find(self._draw.target, flow, store, self._servers, self._draw.whole, self._rng)
            if process.poll() is not None:
                return
            if found:
                killed = [_describe(member) for member in found]
                if sum(_sigkill(member) for member in found):
                    self.record.killed, self.record.moment_s = killed, round(time.monotonic() - begun, 3)
                    self.record.ended_before = len(check.finished(store).files) if store else 0
                    return
            after += 0.05

    def _judge_first(self) -> None:
        """The command that was disturbed: its status is right, and 0 means that all holds already."""
        status, target = self.record.first_status, self._draw.target
        expected = (-signal.SIGKILL,) if target == "flow" else (0, 1)
        if status not in expected:
            self.record.violations.append(f"the disturbed command ended with {status}, not with one of {expected}")
        self._no_traceback("first")
        store = self._store()
        if status == 0 and store is not None:
            early = check.violations(store, check.Finished(), steps=STEPS, hit=self._hit(store), prefect=target != "prefect")
            self.record.violations += [f"before the resume, after status 0: {problem}" for problem in early]

    def _heal(self) -> None:
        store = self._store()
        planned = store is not None and store.exists()
        before = check.finished(store) if store is not None else check.Finished()
        if self._stack is not None:
            bring_up(self._stack)
        command = ["resume", store.sweep_id] if store is not None and planned else ["run", str(SUITE), *self._pool]
        with self._command("resume", *command) as process:
            self.record.resume_status = process.wait(_DEADLINE_S)
        if self.record.resume_status != 0:
            self.record.violations.append(f"`sweep {command[0]}` ended with {self.record.resume_status}")
        self._no_traceback("resume")
        store = self._store()
        if store is None:
            self.record.violations.append("there is no sweep")
            return
        self.record.violations += check.violations(store, before, steps=STEPS, hit=self._hit(store))
        left = self._left(store)
        deadline = time.monotonic() + _GONE_S
        while left and time.monotonic() < deadline:
            time.sleep(0.2)
            left = self._left(store)
        self.record.violations += [f"still runs: {command}" for command in left]

    def _hit(self, store: SweepStore) -> list[str]:
        """Trials that may have had a second attempt: the one that was killed; all that lost their Ray head."""
        if self._draw.target == "ray":
            return [trial.key for trial in store.load_plan().trials]
        if self._draw.target == "trial":
            return [trial.key for trial in store.load_plan().trials if any(trial.key in killed for killed in self.record.killed)]
        return []

    def _no_traceback(self, name: str) -> None:
        if "Traceback" in (self._folder / f"{name}.log").read_text(errors="replace"):
            self.record.violations.append(f"a traceback in what the {name} command said")

    def _store(self) -> SweepStore | None:
        """The round's sweep; None before it is planned."""
        new = [sweep for sweep in list_sweeps(self._runs) if sweep not in self._before]
        store = SweepStore(new[0], self._runs) if new else None
        return store if store is not None and store.exists() else None

    def _left(self, store: SweepStore) -> list[str]:
        return [*check.left_running(store), *(_describe(process) for process in self._marked())]

    def _marked(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if variables(process).get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except (psutil.Error, OSError):
                continue

    def _end_what_is_left(self) -> None:
        """Also what is a violation: the next round begins on a quiet machine."""
        for process in self._marked():
            _sigkill(process)

    @contextmanager
    def _command(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """`sweep ARGUMENTS`, what it says in a file."""
        more = {"SWEEPBENCH_RUNS": str(self._runs), "PYTHONPATH": str(REPOSITORY), MARK: self._mark}
        if self._stack is not None:
            servers = self._stack.settings
            more |= {
                **self._stack.variables,
                **more,
                "SWEEPBENCH_LOCAL_ADDRESS": servers.ray_url,
                "RAY_AUTH_TOKEN_PATH": str(servers.token),
            }
        log: TextIO
        with open(self._folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *arguments],
                cwd=self._folder,
                env={**os.environ, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _describe(process: psutil.Process) -> str:
    try:
        key = variables(process).get("SWEEPBENCH_TRIAL", "")
        return f"{process.pid} {key} {shown(process.cmdline())}"
    except (psutil.Error, OSError):
        return f"{process.pid} (gone)"


def _sigkill(process: psutil.Process) -> bool:
    """False where it had ended."""
    try:
        process.kill()
        return True
    except psutil.Error:
        return False
