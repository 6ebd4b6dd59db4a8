"""Other work on an embedded pool's machine, as readings that the tests make show it."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from cluster.pools.busy import LOOK_S, Look, other_work
from cluster.pools.pool import Pool

CPU, CUDA = (Pool(name=device, device=device, address="embedded") for device in ("cpu", "cuda"))


class Times(NamedTuple):
    user: float
    system: float
    idle: float
    iowait: float
    guest: float = 0.0


class Machine:
    """Four cores: `busy` s of their 2.0 s go to `processes` (pid, name -> s) and to what has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float, processes: dict[tuple[int, str], float]) -> None:
        self.busy, self.processes, self.looked = busy, processes, 0.0
        monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
        monkeypatch.setattr(psutil, "cpu_times", self.cpu_times)
        monkeypatch.setattr(psutil, "process_iter", self.process_iter)

    @property
    def done(self) -> float:
        return self.looked / LOOK_S

    def sleep(self, seconds: float) -> None:
        self.looked += seconds

    def cpu_times(self) -> Times:
        return Times(
            100 + self.busy * self.done * 0.75, 10 + self.busy * self.done * 0.25, 500 + (4 * LOOK_S - self.busy) * self.done, 3.0, 50.0
        )

    def process_iter(self, wanted: list[str]) -> Any:
        for (pid, name), used in self.processes.items():
            spent = SimpleNamespace(user=7 + used * self.done, system=1.0)
            yield SimpleNamespace(info={"pid": pid, "name": name, "cpu_times": spent})
        yield SimpleNamespace(info={"pid": 2, "name": "kernel", "cpu_times": None})


def test_an_idle_machine_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert other_work(CPU, sleep=Machine(monkeypatch, 0.0, {(7, "sh"): 0.0}).sleep) is None


def test_other_work_is_named_with_its_share_and_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 0.8, {(7, "sh"): 0.1, (8, "make"): 0.0, (9, "cc"): 0.4, (10, "ld"): 0.2, (11, "as"): 0.05})
    assert other_work(CPU, sleep=machine.sleep) == (
        "other processes use 40 % of the CPU (cc pid 9, ld pid 10, sh pid 7), and from 5 % on a trial counts as disturbed"
    )
    assert machine.looked == LOOK_S


@pytest.mark.parametrize(("pool", "limit"), [(CPU, 0.05), (CUDA, 0.5)])
def test_the_limit_is_that_of_a_disturbed_trial(monkeypatch: pytest.MonkeyPatch, pool: Pool, limit: float) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where it is not installed
    for share, busy in ((limit - 0.01, False), (limit + 0.01, True)):
        assert (other_work(pool, sleep=Machine(monkeypatch, share * 4 * LOOK_S, {}).sleep) is not None) is busy


def test_this_process_itself_is_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert other_work(CPU, sleep=Machine(monkeypatch, 0.4, {(os.getpid(), "sweep"): 0.4}).sleep) is None


def test_a_look_that_began_earlier_is_waited_for_only_as_long_as_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 0.8, {(9, "cc"): 0.8})
    began = Look()
    monkeypatch.setattr("cluster.pools.busy.time.monotonic", lambda: began.at + 0.75 * LOOK_S)
    machine.looked = 0.75 * LOOK_S
    assert other_work(CPU, began, machine.sleep) is not None and machine.looked == pytest.approx(LOOK_S)
    monkeypatch.setattr("cluster.pools.busy.time.monotonic", lambda: began.at + 3 * LOOK_S)
    assert other_work(CPU, began, machine.sleep) is not None and machine.looked == pytest.approx(LOOK_S)  # long enough: no wait


def test_a_cluster_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Pool(name="lab", device="cpu", address="http://127.0.0.1:1")
    assert other_work(remote, sleep=lambda seconds: pytest.fail("it looked at this machine")) is None


@pytest.mark.parametrize(
    ("pids", "visible", "text"),
    [
        ([[], []], None, None),
        ([[71], []], None, "process 71 computes on a GPU"),
        ([[72], [71, 72]], None, "2 processes compute on the GPUs (pid 71, ...)"),
        ([[72], [71]], "1", "process 71 computes on a GPU"),
        ([[72], []], "1", None),  # another sweep's GPU
        ([[71], []], "0,7", "process 71 computes on a GPU"),  # one that NVML does not know hides nothing of the others
    ],
)
def test_who_computes_on_a_gpu(monkeypatch: pytest.MonkeyPatch, pids: list[list[int]], visible: str | None, text: str | None) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    closed = []

    def handle(index: int) -> int:
        if index >= len(pids):
            raise RuntimeError("no such GPU")
        return index

    library = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: closed.append(True),
        nvmlDeviceGetCount=lambda: len(pids),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids[handle]],
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert other_work(CUDA, sleep=Machine(monkeypatch, 0.0, {}).sleep) == text
    assert closed == [True]

    def refuse(handle: int) -> Any:
        raise RuntimeError("not supported")

    library.nvmlDeviceGetComputeRunningProcesses = refuse
    assert other_work(CUDA, sleep=Machine(monkeypatch, 0.0, {}).sleep) is None
