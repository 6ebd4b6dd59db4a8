"""The synthetic workload, with one fault at one step. For tests: SWEEPBENCH_EXTRA=tests/workloads_for_tests.

Steps are counted as the journal counts them: from 1, warm-up included. A fault happens just before the step's loss is computed.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cluster.worker import rank_group
from experiments.components.workload import Batch, Context, Unsupported
from experiments.workloads import synthetic

if TYPE_CHECKING:
    import torch
    from torch import nn

MARKER = "fault-fired"  # file in `marker_dir`: one line per time the fault fired, so that a test can assert that it did


class Parameters(synthetic.Parameters):
    """Which fault, and when."""

    fault: Literal[
        "none",
        "raise",  # RuntimeError
        "device_oom",  # torch.OutOfMemoryError
        "host_oom",  # MemoryError
        "nan",  # the loss
        "inf",  # the loss
        "unsupported",
        "kill",  # SIGKILL to this process
        "kill_loading",  # the same, while a DataLoader's process of it hangs
        "hang",  # sleeps for ever
        "setsid_child",  # leaves a child in a session of its own, then goes on
        "disk_full",  # writes into marker_dir until the disk is full
        "io_error",  # from now on every fsync of this process fails with EIO, as on a disk that fails
        "data_error",  # a read fails with EIO, as of a data set on a disk that fails
        "slow",  # every step from fault_step on takes step_sleep_s longer
    ] = "none"
    fault_step: int = Field(3, ge=1)
    fault_rank: int = Field(0, ge=-1, description="-1: on every rank")
    fault_times: int = Field(1_000_000, ge=1, description="1: only the first attempt fails; needs marker_dir")
    marker_dir: str | None = Field(None, description="folder that outlives the attempt")
    step_sleep_s: float = Field(0.0, ge=0, le=10, description="added to every step")
    agree_s: float | None = Field(None, gt=0, description="how long a rank waits for the others to fail as it did; None: as any trial's")
    fits: int = Field(1_000_000, ge=0, description="a larger batch is out of device memory")


def build(context: Context) -> Faulty:
    return Faulty(context)


def _failing_disk(descriptor: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class Faulty(synthetic.Synthetic):
    """Synthetic with a fault."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.parameters: Parameters = context.parameters
        self.step = 0
        if self.parameters.agree_s is not None:
            rank_group.AGREE_S = self.parameters.agree_s

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        import torch

        loss = super().loss(model, batch)
        if not torch.is_grad_enabled():  # evaluation
            return loss
        self.step += 1
        if self.context.batch_size > self.parameters.fits:
            raise torch.OutOfMemoryError(f"pretended: {self.context.batch_size} samples do not fit, {self.parameters.fits} would")
        due = self.step == self.parameters.fault_step or (self.parameters.fault == "slow" and self.step > self.parameters.fault_step)
        if self.parameters.step_sleep_s and (self.parameters.fault != "slow" or due):
            time.sleep(self.parameters.step_sleep_s)
        if due and self.parameters.fault_rank in (-1, self.context.rank) and self._fires():
            return self._fail(loss)
        return loss

    def _fires(self) -> bool:
        """Whether it is to happen this time; leaves a line in the marker file if so."""
        if self.parameters.fault in ("none", "slow"):
            return False
        if self.parameters.marker_dir is None:
            return True
        marker = Path(self.parameters.marker_dir) / MARKER
        before = len(marker.read_text().splitlines()) if marker.exists() else 0
        if before >= self.parameters.fault_times:
            return False
        with open(marker, "a") as file:
            file.write(f"{self.parameters.fault} at step {self.step}, process {os.getpid()}\n")
            file.flush()
            os.fsync(file.fileno())
        return True

    def _fail(self, loss: torch.Tensor) -> torch.Tensor:
        import torch

        match self.parameters.fault:
            case "raise":
                raise RuntimeError(f"deliberate failure at step {self.step}")
            case "device_oom":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (pretended)")
            case "host_oom":
                raise MemoryError("pretended")
            case "unsupported":
                raise Unsupported("pretended")
            case "nan" | "inf":
                return loss * float(self.parameters.fault)
            case "kill" | "kill_loading":
                self._kill()
            case "hang":
                while True:
                    time.sleep(60)
            case "setsid_child":
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
                print(f"left process {child.pid} behind", flush=True)
            case "disk_full":
                self._fill()
            case "data_error":
                with open("/proc/self/mem", "rb", buffering=0) as memory:
                    memory.read(1)  # no address is 0
            case "io_error":
                os.fsync = _failing_disk
        return loss

    def _kill(self) -> None:
        if self.parameters.fault == "kill_loading":
            self._hang_in_loader()
        os.kill(os.getpid(), signal.SIGKILL)

    def _hang_in_loader(self) -> None:
        """Returns once a DataLoader's process hangs within a batch."""
        from experiments.components.data.loading import load

        source, sink = os.pipe()

        class Hangs:
            def __getitem__(self, index: int) -> Batch:
                os.write(sink, b"h")
                time.sleep(600)
                raise AssertionError

        parameters = self.parameters.model_copy(update={"loader": "processes", "dataloader_workers": 1})
        self.batches = iter(load(Hangs(), iter(range(9)), replace(self.context, parameters=parameters)))
        os.read(source, 1)

    def _fill(self) -> None:
        """Raises OSError ENOSPC. Refuses a folder with more than 64 MiB free: it is meant for a tiny tmpfs."""
        assert self.parameters.marker_dir is not None, "disk_full needs marker_dir on a tiny file system"
        room = os.statvfs(self.parameters.marker_dir)
        assert room.f_bavail * room.f_frsize < 64 * 2**20, "marker_dir is not on a tiny file system"
        with open(Path(self.parameters.marker_dir) / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(2**16))
