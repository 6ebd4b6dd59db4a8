"""Locking clocks through an nvidia-smi that the tests write; the real one is never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.sampler.clock_lock import ClockLock


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What nvidia-smi was called with, a line each. `answer`: a shell script that it runs besides."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ ! -f {tmp_path}/answer ] || . {tmp_path}/answer\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "calls"


def test_all_gpus_are_locked_and_released(calls: Path) -> None:
    lock = ClockLock(["0", "GPU-b"], 1500)
    assert lock.set() is None
    assert calls.read_text().splitlines() == ["-i 0 -lgc 1500,1500", "-i GPU-b -lgc 1500,1500"]
    assert lock.release() is None
    assert calls.read_text().splitlines()[2:] == ["-i 0 -rgc", "-i GPU-b -rgc"]
    assert lock.release() is None and len(calls.read_text().splitlines()) == 4, "once"


def test_where_it_is_not_permitted_nothing_stays_locked(calls: Path) -> None:
    text = "The current user does not have permission to change clocks for GPU 1."
    calls.with_name("answer").write_text(f'case "$*" in "-i 1 -lgc"*) echo "{text}"; exit 4;; esac\n')
    assert ClockLock(["0", "1"], 1500).set() == f"nvidia-smi -i 1 -lgc 1500,1500: {text}"
    assert calls.read_text().splitlines() == ["-i 0 -lgc 1500,1500", "-i 1 -lgc 1500,1500", "-i 0 -rgc"]


def test_what_a_gpu_does_not_support_is_no_success(calls: Path) -> None:
    calls.with_name("answer").write_text(
        'echo "Setting locked GPU clocks is not supported for GPU 0. Treating as warning and moving on."\n'
    )
    reason = ClockLock(["0"], 1500).set()
    assert reason is not None and "not supported for GPU 0" in reason


def test_a_release_that_fails_is_told(calls: Path) -> None:
    lock = ClockLock(["0"], 1500)
    lock.set()
    calls.with_name("answer").write_text("exit 9\n")
    assert lock.release() == "nvidia-smi -i 0 -rgc: exit status 9"


def test_without_nvidia_smi_or_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = ClockLock(["0"], 1500).set()
    assert reason is not None and "No such file" in reason
    assert ClockLock([], 1500).set() == "no GPU is visible"
