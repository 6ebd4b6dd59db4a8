"""The sampler beside a real GPU: clocks under load, and other processes on the device. `make test-gpu` runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from cluster.devices import load
from cluster.sampler import nvml
from cluster.sampler.state_file import read_records
from cluster.worker.device_sampler import sampling
from cluster.worker.rank_group import Ranks
from experiments.device_state import summarise_state
from tests.contracts import make_trial

pytest.importorskip("pynvml")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

# A CUDA context and 256 MiB through the driver alone, so that another user needs no access to torch
CO_TENANT = """
import ctypes, os, sys, time
if int(sys.argv[1]):
    os.setgid(65534); os.setuid(65534)
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
for status in (
    cuda.cuInit(0),
    cuda.cuDeviceGet(ctypes.byref(device), 0),
    cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 28)),
):
    if status:
        sys.exit(f"CUDA driver: error {status}")
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""


@contextmanager
def co_tenant(folder: Path, *, nobody: bool) -> Iterator[psutil.Process]:
    """Another process on GPU 0. Its parent has ended: as a child of the test's process it would be the trial's."""
    log, script = folder / "co-tenant", folder / "co_tenant.py"
    script.write_text(CO_TENANT)
    subprocess.run(["sh", "-c", f"exec setsid {sys.executable} -S {script} {int(nobody)} > {log} 2>&1 &"], check=True)
    deadline = time.monotonic() + 60
    while not (found := re.search(r"ready (\d+)", said := log.read_text() if log.exists() else "")):  # the shell makes the file
        assert time.monotonic() < deadline and "error" not in said, said
        time.sleep(0.05)
    process = psutil.Process(int(found[1]))
    try:
        yield process
    finally:
        process.kill()


def sampled(folder: Path, samples: int) -> list[dict[str, Any]]:
    """The sampler's records of a while in which this process multiplies matrices."""
    trial = make_trial(folder, "9b00000000000001").model_copy(update={"device": "cuda"})
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    with sampling(trial, Ranks(), folder, 1):
        while len(read_records(folder / "device_state.jsonl", 1)) < samples:
            for _ in range(50):
                x @ x
            torch.cuda.synchronize()
    return read_records(folder / "device_state.jsonl", 1)


def test_clocks_power_and_temperature_under_load(tmp_path: Path) -> None:
    records = sampled(tmp_path, 30)
    header, states = records[1], records[2:]
    assert header["sources"]["devices"] is None and header["device"] == "cuda"
    (first,) = states[0]["devices"]
    assert str(torch.cuda.get_device_properties(0).uuid) in first["uuid"]
    state = summarise_state(records, states[10]["t"], states[25]["t"])
    highest = load("cuda").describe()["max_clock_mhz"]
    assert state.clock_mean_mhz is not None and state.clock_min_mhz is not None
    assert 100 < state.clock_min_mhz <= state.clock_mean_mhz <= highest
    assert state.power_w is not None and 50 < state.power_w < 2000
    assert state.temperature_c is not None and 15 < state.temperature_c < 110
    assert state.capped_share is not None and state.other_processes == 0


@pytest.mark.parametrize("nobody", [False, pytest.param(True, marks=pytest.mark.skipif(os.getuid() != 0, reason="needs root"))])
def test_a_co_tenant_is_seen_with_its_user(tmp_path: Path, nobody: bool) -> None:
    with co_tenant(tmp_path, nobody=nobody) as other:
        user = other.username()
        records = sampled(tmp_path, 20)
    state = summarise_state(records, records[8]["t"], records[15]["t"])
    assert state.other_processes == 1 and state.disturbed is not None
    if nvml._namespace() == nvml._HOSTS_NAMESPACE:  # else NVML may number processes otherwise
        assert state.disturbed.startswith(f"another process (pid {other.pid}, user {user}) was on the device")
