"""The sampler as a real process: it starts beside a worker, ends with it however that ends, and undoes what it did."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.launchers import processes
from cluster.process_marks import MARK
from cluster.sampler.state_file import read_records
from cluster.worker import device_sampler
from cluster.worker.device_sampler import Sampling, sampling
from cluster.worker.rank_group import Ranks
from experiments.config.paths import REPOSITORY
from experiments.trial import Trial
from tests.contracts import make_trial

KEY = secrets.token_hex(8)  # whose processes are looked for on the whole machine, where another run of these tests may be
DEADLINE_S = 60.0
WORKER = """
import os, sys, time
from pathlib import Path
from cluster.worker.device_sampler import sampling
from cluster.worker.rank_group import Ranks
from experiments.trial import Trial

folder = Path(sys.argv[1])
with sampling(Trial.model_validate_json((folder / "trial.json").read_text()), Ranks(), folder, 1):
    if os.fork() == 0:  # as a DataLoader's process: it inherits the pipe, and lives on
        time.sleep(600)
    print("ready", flush=True)
    time.sleep(600)
"""


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (answer := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that is waited for too briefly is killed, and what it writes or undoes at its end is then missing."""
    monkeypatch.setattr(device_sampler, "END_S", DEADLINE_S)


def samplers(folder: Path) -> list[psutil.Process]:
    """Samplers that run and write into `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            if "cluster.sampler.main" in command and any(str(folder) in part for part in command) and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


def records(folder: Path) -> list[dict[str, Any]]:
    return read_records(folder / "device_state.jsonl", 1)


def test_it_samples_while_the_block_runs_and_the_file_is_whole_after_it(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, KEY)
    with sampling(trial, Ranks(), tmp_path, 1) as found:
        (process,) = until(lambda: samplers(tmp_path))
        assert processes.of_trial(KEY) == [], "nobody waits for it, or ends it, as a process of the trial"
        until(lambda: len(records(tmp_path)) > 3)
    assert found == Sampling() and not process.is_running()
    attempt, header, *states = records(tmp_path)
    assert (attempt["kind"], attempt["pid"], header["kind"]) == ("attempt", process.pid, "sampler")
    assert (header["attempt"], header["device"], header["hz"], header["emulated"]) == (1, "cpu", 10.0, False)
    assert header["cores"] == psutil.cpu_count()
    assert header["user"] == psutil.Process().username() and "devices" not in header["sources"]
    assert {state["kind"] for state in states} == {"state"} and len(states) >= 2
    assert {*states[-1]["cpu"]} == {"mhz", "mhz_min", "load1", "steal", "others", "psi_some", "throttled"}


def test_a_device_without_its_library_leaves_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    trial = make_trial(tmp_path, KEY).model_copy(update={"device": "cuda", "emulated": True})
    with sampling(trial, Ranks(), tmp_path, 1):
        until(lambda: len(records(tmp_path)) > 2)
    header, state = records(tmp_path)[1:3]
    assert header["sources"]["devices"] == "ImportError: not installed" and header["sources"]["cpu"] is None
    assert header["emulated"] and "devices" not in state and "cpu" in state


def test_it_is_ours_whatever_lies_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cluster", "psutil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    with sampling(make_trial(tmp_path, KEY), Ranks(), tmp_path, 1):
        until(lambda: len(records(tmp_path)) > 2)
    assert records(tmp_path)[1]["sources"]["cpu"] is None


def test_other_ranks_and_a_program_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(tmp_path, KEY)
    monkeypatch.setattr(device_sampler, "_command", lambda *given: [str(tmp_path / "missing")])
    with sampling(trial, Ranks(1, 2, 1, 2), tmp_path, 1) as found:
        assert found == Sampling()
    with sampling(trial, Ranks(), tmp_path, 1) as found:
        (note,) = found.notes
        assert note.startswith("the device's state is not sampled: ") and found.facts == {}


def start_worker(folder: Path, trial: Trial) -> subprocess.Popen[bytes]:
    (folder / "trial.json").write_text(trial.model_dump_json())
    environment = {**os.environ, MARK: trial.key, "PYTHONPATH": str(REPOSITORY)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(folder)], env=environment, stdout=subprocess.PIPE)
    assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
    return worker


def end_of(process: psutil.Process) -> None:
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


def test_a_worker_that_is_killed_takes_it_along_although_a_child_holds_the_pipe(tmp_path: Path) -> None:
    worker = start_worker(tmp_path, make_trial(tmp_path, KEY))
    try:
        (process,) = until(lambda: samplers(tmp_path))
        until(lambda: len(records(tmp_path)) > 2)
        assert process.pid not in [one.pid for one in processes.of_trial(KEY)]
        worker.kill()
        worker.wait()
        end_of(process)
        assert processes.of_trial(KEY) != [], "the child that held the pipe outlived it"
        assert records(tmp_path)[-1]["kind"] == "state", "and the file is whole"
    finally:
        processes.end_all(KEY)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an nvidia-smi of the test was called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n[ ! -f {folder}/refuse ] || {{ echo no permission; exit 4; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    return folder / "calls"


def locking(folder: Path) -> Trial:
    return make_trial(folder, KEY).model_copy(update={"device": "cuda", "lock_clocks_mhz": 1500})


def test_clocks_are_locked_before_the_block_and_released_after_it(tmp_path: Path, nvidia_smi: Path) -> None:
    with sampling(locking(tmp_path), Ranks(0, 2, 0, 2), tmp_path, 1) as found:
        assert found == Sampling({"locked_clocks_mhz": 1500})
        assert nvidia_smi.read_text().splitlines() == ["-i GPU-a -lgc 1500,1500", "-i GPU-b -lgc 1500,1500"]
    assert nvidia_smi.read_text().splitlines()[2:] == ["-i GPU-a -rgc", "-i GPU-b -rgc"]
    assert records(tmp_path)[1]["locked_clocks_mhz"] == 1500


def test_where_locking_is_not_permitted_the_trial_runs_and_says_so(tmp_path: Path, nvidia_smi: Path) -> None:
    nvidia_smi.with_name("refuse").touch()
    with sampling(locking(tmp_path), Ranks(), tmp_path, 1) as found:
        assert found.facts == {"locked_clocks_mhz": None}
        assert found.notes == ("clocks are not locked: nvidia-smi -i GPU-a -lgc 1500,1500: no permission",)
    assert nvidia_smi.read_text().splitlines() == ["-i GPU-a -lgc 1500,1500"]
    assert records(tmp_path)[1]["locked_clocks_mhz"] is None


def test_devices_on_several_nodes_are_sampled_and_not_locked(tmp_path: Path, nvidia_smi: Path) -> None:
    with sampling(locking(tmp_path), Ranks(0, 2, 0, 1), tmp_path, 1) as found:
        until(lambda: len(records(tmp_path)) > 2)
    assert found == Sampling({"locked_clocks_mhz": None}, ("clocks are not locked: the trial's devices are on several nodes",))
    assert not nvidia_smi.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_leaves_no_clock_locked(tmp_path: Path, nvidia_smi: Path, number: signal.Signals) -> None:
    worker = start_worker(tmp_path, locking(tmp_path))
    try:
        (process,) = until(lambda: samplers(tmp_path))
        assert nvidia_smi.read_text().splitlines() == ["-i GPU-a -lgc 1500,1500"]
        worker.send_signal(number)
        processes.end_all(KEY)  # as a launcher does
        worker.wait()
        end_of(process)
        assert nvidia_smi.read_text().splitlines() == ["-i GPU-a -lgc 1500,1500", "-i GPU-a -rgc"]
    finally:
        processes.end_all(KEY)
