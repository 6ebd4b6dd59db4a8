"""The local launcher on small programs in place of a trial: sessions, signals, the log, exit statuses, process ids used again."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cluster.launchers import Launch, LaunchError, local, processes
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from experiments.trial import Trial
from tests.contracts import make_trial
from tests.process_support import commands_of

KEY = secrets.token_hex(8)  # whose processes are looked for on the whole machine, where another run of these tests may be
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
SHELL = Pool(name="cpu", device="cpu", address="embedded", python="/bin/sh")


class Programs:
    """What `start` runs: `sh -c TEXT` in the trial's folder. Ends what a test leaves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        self.trial: Trial = make_trial(folder, KEY)
        self.launcher = LocalLauncher(SHELL)

    def start(self, text: str, attempt: int = 1) -> Launch:
        self._monkeypatch.setattr(local, "trial_command", lambda folder, number, told: ["-c", f"cd {folder}; attempt={number}; {text}"])
        return self.launcher.start(self.trial, self.folder, attempt)

    def sleep(self, attempt: int = 1, before: str = ":") -> Launch:
        """One that does nothing for long, once it is found: while a process changes its program it has no variables, and no mark."""
        launch = self.start(f"{before}; exec sleep 600", attempt)
        until(lambda: any(found.pid == int(launch.id) and command == ["sleep", "600"] for found, command in commands_of(KEY).items()))
        return launch

    def end(self, launch: Launch) -> int | None:
        """Its exit status, once it has ended by itself."""
        over(launch)
        return self.launcher.status(launch).exit_code

    def log(self, launch: Launch) -> list[str]:
        return self.launcher.log(launch, self.folder).splitlines()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    made = Programs(tmp_path / "trial", monkeypatch)
    adopt = ctypes.CDLL(None).prctl
    adopt(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans are this process's: some machines' init takes seconds to reap one
    yield made
    processes.end_all(KEY)
    adopt(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def over(launch: Launch) -> None:
    """Wait until this child of this process has ended, and leave its status for its launcher."""
    os.waitid(os.P_PID, int(launch.id), os.WEXITED | os.WNOWAIT)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.002)


class Time:
    """Virtual seconds: a sleep of the launcher is over at once, or when `on_sleep` returns."""

    def __init__(self, on_sleep: Callable[[], object] = lambda: None) -> None:
        self.now, self.on_sleep = 500.0, on_sleep

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def test_a_launch_says_how_to_find_its_process_again(programs: Programs) -> None:
    launch = programs.sleep(attempt=4)
    process = psutil.Process(int(launch.id))
    assert launch == Launch(launcher="local", key=KEY, attempt=4, id=str(process.pid), born=process.create_time())
    assert os.getsid(process.pid) == process.pid != os.getsid(0), "it survives the terminal and the flow: a session of its own"
    assert [found.pid for found in processes.of_trial(KEY)] == [process.pid]
    for launcher in (programs.launcher, LocalLauncher(SHELL)):
        status = launcher.status(launch)
        assert (status.running, status.exit_code, status.message) == (True, None, None)


def test_an_attempt_that_was_about_to_be_started_is_found_by_its_mark(programs: Programs) -> None:
    """With its child, in a session of its own, which is not taken for it."""
    launcher = LocalLauncher(SHELL)
    starting = launcher.starting(programs.trial, programs.folder, 4)
    assert starting.starting and launcher.find_started(starting) is None and not launcher.status(starting).running
    launcher.stop(starting)
    launch = programs.sleep(attempt=4, before="setsid sleep 601 & exec 2>&1")
    until(lambda: ["sleep", "601"] in commands_of(KEY).values())
    assert launcher.find_started(starting) == launch and launcher.status(starting).running
    launcher.stop(starting)
    assert launcher.find_started(starting) is None and not launcher.status(launch).running and commands_of(KEY) == {}


def test_an_attempt_that_was_about_to_be_started_is_asked_to_end_before_it_is_killed(programs: Programs) -> None:
    launcher = LocalLauncher(SHELL)
    programs.start("trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    starting = launcher.starting(programs.trial, programs.folder, 1)
    until(lambda: "ready" in launcher.log(starting, programs.folder))
    launcher.stop(starting, grace_s=60)
    assert "told" in launcher.log(starting, programs.folder).splitlines()


def test_a_process_that_is_gone_before_it_is_looked_at_has_no_start_time(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    with monkeypatch.context() as patch:
        patch.setattr(psutil, "Process", gone)
        launch = programs.start("exit 0")
    assert launch.born is None and programs.end(launch) == 0


@pytest.fixture
def typed() -> Iterator[None]:
    """Standard input of this process holds a line."""
    source, sink = os.pipe()
    os.write(sink, b"typed by a person\n")
    os.close(sink)
    before = os.dup(0)
    os.dup2(source, 0)
    yield
    os.dup2(before, 0)
    for descriptor in (before, source):
        os.close(descriptor)


@pytest.mark.usefixtures("typed")
def test_the_log_has_all_that_the_attempts_said(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_FLOW", "inherited")
    say = 'echo "out $attempt $SWEEPBENCH_TRIAL $HF_HUB_OFFLINE $OF_THE_FLOW"; echo err >&2; cat'  # standard input is empty
    for attempt in (1, 2):
        assert programs.end(programs.start(say, attempt)) == 0
    launch = programs.start("printf '\\377'", 3)
    programs.end(launch)
    lines = programs.log(launch)
    assert [line.split(" at ")[0] for line in lines if line.startswith("---")] == ["--- attempt 1", "--- attempt 2", "--- attempt 3"]
    assert lines[1:3] == [f"out 1 {KEY} 1 inherited", "err"] and lines[4:6] == [f"out 2 {KEY} 1 inherited", "err"]
    assert lines[7] == "\N{REPLACEMENT CHARACTER}" and len(lines) == 8
    assert lines[0].endswith("Z") and len(lines[0]) == len("--- attempt 1 at 2026-01-01T00:00:00Z")
    assert programs.launcher.log(launch, programs.folder / "elsewhere") == ""


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [("exit 0", 0, None), ("exit 75", 75, "exit status 75"), ("kill -KILL $$", -9, "killed by SIGKILL")],
)
def test_how_it_ended_is_known_to_who_started_it(programs: Programs, text: str, code: int, message: str | None) -> None:
    launch = programs.start(text)
    assert programs.end(launch) == code
    status = programs.launcher.status(launch)
    assert (status.running, status.message) == (False, message)
    other = LocalLauncher(SHELL).status(launch)
    assert (other.running, other.exit_code) == (False, None)
    assert other.message == "the process is gone; its parent did not see it end"


def test_an_earlier_attempt_is_not_taken_for_the_one_that_runs(programs: Programs) -> None:
    first = programs.start("exit 3")
    programs.end(first)
    programs.sleep(attempt=2)
    status = programs.launcher.status(first)
    assert (status.running, status.exit_code) == (False, None)


def test_a_python_that_is_not_there_is_named(programs: Programs, tmp_path: Path) -> None:
    missing = LocalLauncher(SHELL.model_copy(update={"python": str(tmp_path / "python")}))
    with pytest.raises(LaunchError, match=rf"^pool cpu: cannot start {tmp_path}/python: .*No such file"):
        missing.start(programs.trial, programs.folder, 1)


def test_a_pool_without_a_python_of_its_own_uses_this_one(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "trial_command", lambda folder, number, told: ["-S", "-c", "import sys; print(sys.executable)"])
    programs.launcher = LocalLauncher(SHELL.model_copy(update={"python": None}))
    launch = programs.launcher.start(programs.trial, programs.folder, 1)
    assert programs.end(launch) == 0
    assert programs.log(launch)[1:] == [sys.executable]


def test_a_trial_is_asked_to_end_before_it_is_ended(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not waited for longer than it takes."""
    launch = programs.start(
        "trap 'until [ -e waited ]; do sleep 0.01; done; echo told; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    )
    until(lambda: "ready" in programs.log(launch))
    # Else it might have ended before it is looked at for the first time
    clock = Time(on_sleep=lambda: ((programs.folder / "waited").touch(), over(launch)))
    monkeypatch.setattr(local, "time", clock)
    programs.launcher.stop(launch, grace_s=5.0)
    assert programs.log(launch)[-1] == "told"
    assert clock.now == pytest.approx(500.05)
    assert not programs.launcher.status(launch).running
    assert not Path(f"/proc/{launch.id}").exists(), "its exit was taken note of: no zombie stays"


def test_a_trial_that_does_not_listen_is_ended_after_the_grace(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = programs.start("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    until(lambda: "ready" in programs.log(launch))
    clock = Time()
    monkeypatch.setattr(local, "time", clock)
    programs.launcher.stop(launch, grace_s=3.0)
    assert clock.now == pytest.approx(503.0, abs=0.06)
    assert processes.of_trial(KEY) == [] and not programs.launcher.status(launch).running


@pytest.mark.parametrize("runs", [True, False])
def test_children_that_left_the_session_are_ended_too(programs: Programs, runs: bool) -> None:
    child = f"{sys.executable} -S -c 'import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)'"
    launch = programs.sleep(before=f"{child} & :") if runs else programs.start(f"{child} & exit 0")
    until(lambda: len(programs.log(launch)) == 2)
    left = int(programs.log(launch)[1])
    assert os.getsid(left) == left
    born = processes.start_time(left)
    assert processes.alive(left, born)
    if not runs:
        over(launch)
    LocalLauncher(SHELL).stop(launch)  # one that did not start it
    assert not processes.alive(left, born)
    assert processes.of_trial(KEY) == []
    programs.launcher.stop(launch)


@pytest.mark.parametrize("gone", [False, True])
def test_a_process_that_has_the_trials_id_now_is_left_alone(programs: Programs, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """`gone`: the trial's own process had ended before its start time could be read."""
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        born = psutil.Process(stranger.pid).create_time()
        launch = Launch(launcher="local", key=KEY, attempt=1, id=str(stranger.pid), born=None if gone else born - 3600)
        assert not programs.launcher.status(launch).running
        signals: list[tuple[int, int]] = []
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
            programs.launcher.stop(launch)
        assert signals == [] and stranger.poll() is None
        assert programs.launcher.status(launch.model_copy(update={"born": born})).running
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_that_ends_while_it_is_told_to_is_no_error(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = programs.sleep()
    asked, really = [], os.kill

    def kill(pid: int, number: int) -> None:
        asked.append((pid, number))
        if number == signal.SIGTERM:
            raise ProcessLookupError
        really(pid, number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", kill)
        LocalLauncher(SHELL).stop(launch, grace_s=0.0)
    assert asked[0] == (int(launch.id), signal.SIGTERM)
    assert processes.of_trial(KEY) == []


def test_what_was_started_and_never_recorded_is_ended_before_the_trial_starts_again(programs: Programs) -> None:
    """A flow that died between the start and its record: the next one knows of no attempt."""
    lost = programs.sleep()
    other = LocalLauncher(SHELL)
    programs.launcher = other
    other.end_earlier(programs.trial)
    assert not processes.alive(int(lost.id), lost.born)
    assert other.find_started(other.starting(programs.trial, programs.folder, 2)) is None
    assert programs.end(programs.start("exit 0", 2)) == 0
