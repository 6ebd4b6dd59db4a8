"""Readings of GPUs through a library that the tests make: what a reason means, which GPUs are the trial's, who else is on them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cluster.sampler import nvml
from cluster.sampler.nvml import NvmlSource, reasons


class NVMLError(Exception):
    """As pynvml's."""


class Library(SimpleNamespace):
    """pynvml with two GPUs, whose handles are their numbers."""

    def __init__(self) -> None:
        self.processes: dict[int, list[Any]] = {0: [], 1: []}
        self.unsupported: set[str] = set()
        self.bits = 0x4
        super().__init__(NVMLError=NVMLError)
        for name, answer in {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {b"GPU-a": 0, b"GPU-b": 1, b"MIG-x": 7}[uuid],
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda handle: {7: 1}[handle],
            "nvmlDeviceGetCount": lambda: len(self.processes),
            "nvmlDeviceGetUUID": lambda handle: ["GPU-a", b"GPU-b"][handle],
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1800 + handle, 2: 2619}[kind],
            "nvmlDeviceGetPowerUsage": lambda handle: 650_500,
            "nvmlDeviceGetTemperature": lambda handle, sensor: {0: 61}[sensor],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.bits,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x8,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: self.processes[handle],
        }.items():
            setattr(self, name, self._guarded(name, answer))

    def _guarded(self, name: str, answer: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if self.unsupported & {name, " ".join(map(str, (name, *arguments)))}:
                raise NVMLError("not supported")
            return answer(*arguments)

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(nvml, "_namespace", lambda: nvml._HOSTS_NAMESPACE)
    users = {71: "nobody", 72: "ada"}

    def process(pid: int) -> Any:
        if pid not in users:
            raise psutil.NoSuchProcess(pid)
        return SimpleNamespace(username=lambda: users[pid])

    monkeypatch.setattr(nvml.psutil, "Process", process)
    return library


def source_of(count: int = 1, own: frozenset[int] = frozenset({10}), **environment: str) -> NvmlSource:
    return NvmlSource(count, SimpleNamespace(pids=own), environment)  # type: ignore[arg-type]


def process(pid: int, memory: int | None = 512) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def test_a_reading(library: Library) -> None:
    library.processes[0] = [process(10), process(71)]
    source = source_of()
    assert source.missing() == {}
    assert source.read() == [
        {
            "index": 0,
            "uuid": "GPU-a",
            "sm_mhz": 1800,
            "memory_mhz": 2619,
            "power_w": 650.5,
            "temperature_c": 61,
            "capped_by": ["power"],
            "others": [{"pid": 71, "user": "nobody", "memory_bytes": 512}],
            "neighbours": 0,
        }
    ]


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, []),
        (0x1, ["idle"]),
        (0x2, ["applications clocks setting"]),
        (0x8 | 0x40, ["hardware slowdown", "thermal"]),
        (0x20 | 0x40, ["thermal"]),
        (0x8 | 0x80, ["hardware slowdown", "power brake"]),
        (0x4 | 0x10, ["power", "sync boost"]),
        (0x100 | 0x200, ["display clock setting", "reason 0x200"]),
    ],
)
def test_what_reasons_mean(bits: int, words: list[str]) -> None:
    assert reasons(bits) == words


def test_the_trials_gpus_are_the_first_visible_ones(library: Library) -> None:
    assert [one["uuid"] for one in source_of(2).read()] == ["GPU-a", "GPU-b"]
    assert [one["uuid"] for one in source_of(1, CUDA_VISIBLE_DEVICES="1,0").read()] == ["GPU-b"]
    assert [one["uuid"] for one in source_of(1, CUDA_VISIBLE_DEVICES="GPU-b").read()] == ["GPU-b"]
    assert [one["uuid"] for one in source_of(1, CUDA_VISIBLE_DEVICES="MIG-x").read()] == ["GPU-b"], "clocks are the whole GPU's"
    assert source_of(1, CUDA_VISIBLE_DEVICES="").read() == []


def test_other_gpus_of_the_host_in_use_are_counted_and_the_trials_own_are_not(library: Library) -> None:
    library.processes = {0: [process(10)], 1: [process(71), process(72)]}
    assert [one["neighbours"] for one in source_of().read()] == [1]
    assert [one["neighbours"] for one in source_of(1, frozenset({71, 72}), CUDA_VISIBLE_DEVICES="GPU-b").read()] == [1]
    assert [one["neighbours"] for one in source_of(2).read()] == [0, 0]
    library.processes[1] = []
    assert [one["neighbours"] for one in source_of().read()] == [0]
    library.processes = {0: [], 1: [process(10)]}
    assert [one["neighbours"] for one in source_of(own=frozenset({10})).read()] == [0], "the trial's own process looked at both"


@pytest.mark.parametrize(
    "lacking", ["nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex 1", "nvmlDeviceGetUUID 1", "nvmlDeviceGetComputeRunningProcesses 1"]
)
def test_other_gpus_that_do_not_tell_are_unknown_and_cost_no_reading(library: Library, lacking: str) -> None:
    library.processes[1] = [process(71)]
    library.unsupported = {lacking}
    (reading,) = source_of().read()
    assert (reading["neighbours"], reading["sm_mhz"], reading["others"]) == (None, 1800, [])


def test_what_a_gpu_does_not_tell_is_null_and_named(library: Library) -> None:
    library.unsupported = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses"}
    source = source_of()
    (reading,) = source.read()
    assert (reading["power_w"], reading["others"], reading["sm_mhz"]) == (None, None, 1800)
    names = ("devices.power_w", "devices.others", "devices.neighbours")
    assert source.missing() == dict.fromkeys(names, "not supported by NVML here")


def test_an_older_driver_has_another_name_for_the_reasons(library: Library) -> None:
    library.unsupported = {"nvmlDeviceGetCurrentClocksEventReasons"}
    assert source_of().read()[0]["capped_by"] == ["hardware slowdown"]
    library.unsupported |= {"nvmlDeviceGetCurrentClocksThrottleReasons"}
    assert source_of().read()[0]["capped_by"] is None


def test_a_process_that_cannot_be_seen_has_no_user(library: Library) -> None:
    library.processes[0] = [process(10), process(99, None)]
    assert source_of().read()[0]["others"] == [{"pid": 99, "user": None, "memory_bytes": None}]


def test_on_the_host_an_unknown_process_alone_is_another(library: Library) -> None:
    library.processes[0] = [process(72)]
    assert [other["user"] for other in source_of().read()[0]["others"]] == ["ada"]


def test_in_a_container_one_of_the_hosts_ids_is_the_trials_own(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_namespace", lambda: "pid:[4026532000]")
    source = source_of()
    library.processes[0] = [process(71)]
    assert source.read()[0]["others"] == []
    library.processes[0] = [process(71), process(72)]
    assert source.read()[0]["others"] == [{"pid": 72, "user": None, "memory_bytes": 512}], "72 is another process here"
    library.processes[0] = [process(10), process(72)]  # ids are of this container after all
    assert source.read()[0]["others"] == [{"pid": 72, "user": "ada", "memory_bytes": 512}]


def test_without_the_library_or_a_driver_there_is_no_source(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.unsupported = {"nvmlInit"}
    with pytest.raises(NVMLError):
        source_of()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ImportError):
        source_of()
