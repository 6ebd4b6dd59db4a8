"""The most memory that a process has held, where the device is the host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.devices import cpu
from cluster.devices.cpu import Cpu
from experiments.config.paths import REPOSITORY

MIB = 2**20
# Holds 1.5 GiB, more than torch's libraries, while a process that it starts says what that one has held
STARTER = """
import subprocess, sys
held = bytearray(1536 * 2**20)
held[::4096] = b"x" * len(held[::4096])
child = "from cluster.devices.cpu import Cpu; print(Cpu().peak_memory_bytes())"
print(subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True).stdout)
"""


def test_what_the_starter_of_a_process_held_is_not_the_processs() -> None:
    """getrusage says otherwise: of a program just started, the most that its starter held before."""
    run = subprocess.run([sys.executable, "-c", STARTER], check=True, capture_output=True, text=True, cwd=REPOSITORY)
    assert 20 * MIB < int(run.stdout) < 1536 * MIB


def test_the_peak_stays_after_the_memory_was_given_back() -> None:
    before = Cpu().peak_memory_bytes()
    assert before is not None
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    held = bytearray(before - resident + 256 * MIB)
    held[::4096] = b"x" * len(held[::4096])
    del held
    after = Cpu().peak_memory_bytes()
    assert after is not None and after >= before + 200 * MIB


def test_it_is_in_bytes_and_unknown_where_the_kernel_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    monkeypatch.setattr(cpu, "_STATUS", status)
    assert Cpu().peak_memory_bytes() is None
    status.write_text("Name:\tpython\nVmPeak:\t 99 kB\nVmHWM:\t    7 kB\nVmRSS:\t 5 kB\n")
    assert Cpu().peak_memory_bytes() == 7 * 1024
    status.write_text("Name:\tkthread\n")
    assert Cpu().peak_memory_bytes() is None
