"""A trial that is held waits until it is let go, or until whoever held it is dead."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.worker import hold
from cluster.worker.measure.recorder import Recorder

HOLD = """
import sys
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read(1)
lock.release()
print("let go", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the trial of this test's folder until it reads a letter."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".hold")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


class Sink:
    """The phases that were recorded; `on_phase` is called at each."""

    def __init__(self, on_phase: Any = lambda: None) -> None:
        self.phases: list[str] = []
        self.on_phase = on_phase

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        self.phases.append(fields["name"])
        self.on_phase()

    def close(self) -> None:
        pass


def test_one_that_nobody_holds_does_not_wait_and_says_nothing(tmp_path: Path) -> None:
    sink = Sink()
    assert hold.wait(tmp_path, Recorder(sink)) == 0.0 and not (tmp_path / ".hold").exists()
    (tmp_path / ".hold").touch()  # what an earlier attempt's left
    assert hold.wait(tmp_path, Recorder(sink)) == 0.0 and sink.phases == []


def test_it_waits_until_it_is_let_go_and_says_for_how_long(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def let_go() -> None:
        assert holder.stdin is not None
        holder.stdin.write("x\n")

    clock, sink = iter([100.0, 103.5]), Sink(on_phase=let_go)
    monkeypatch.setattr(hold, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert hold.wait(tmp_path, Recorder(sink)) == 3.5
    assert sink.phases == ["hold"]
    assert holder.stdout is not None and holder.stdout.readline() == "let go\n"


def test_a_holder_that_is_killed_lets_it_go(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    sink = Sink(on_phase=holder.kill)
    assert hold.wait(tmp_path, Recorder(sink)) > 0.0
    assert sink.phases == ["hold"] and holder.wait(60) == -signal.SIGKILL
