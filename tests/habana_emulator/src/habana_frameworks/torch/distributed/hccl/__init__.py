"""Importing this registers torch.distributed's back end `hccl`: here gloo on the same host memory, one call after the other.

Synchronous on purpose: optimum-habana's fast DDP starts its all-reduce and never waits for it, and relies on the device's stream order.
"""

import os
from typing import Any

import torch
import torch.distributed as dist

from ... import _hpu_device


class _Done(dist._Work):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result
        self._future = torch.futures.Future(devices=[torch.device("hpu", 0)])
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        return self._future

    def result(self) -> Any:
        return self._result


def _host(value: Any) -> Any:
    """The same memory as CPU tensors. The real back end takes no others either."""
    if not isinstance(value, torch.Tensor):
        return [_host(item) for item in value]
    if value.device.type != "hpu":
        raise RuntimeError(f"hccl handles hpu tensors only, got {value.device}")
    return _hpu_device.as_cpu(value.detach())


class ProcessGroupHccl(dist.ProcessGroup):
    """hccl's calls, handed on to gloo."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    @property
    def _device_types(self) -> list[Any]:
        return [torch.device("hpu")]  # where torch puts what object collectives send

    def getBackendName(self) -> str:
        return "hccl"

    def _run(self, name: str, out: Any, *tensors: Any, options: Any) -> _Done:
        getattr(self._gloo, name)(*map(_host, tensors), options).wait()
        return _Done(out)

    def allreduce(self, tensors: Any, opts: Any = None) -> _Done:
        return self._run("allreduce", tensors, tensors, options=opts or dist.AllreduceOptions())

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> _Done:
        for tensor in tensors:
            self.allreduce([tensor], opts)
        return _Done(tensors)

    def broadcast(self, tensors: Any, opts: Any = None) -> _Done:
        return self._run("broadcast", tensors, tensors, options=opts or dist.BroadcastOptions())

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> _Done:
        return self._run("allgather", outputs, outputs, inputs, options=opts or dist.AllgatherOptions())

    def _allgather_base(self, output: Any, tensor: Any, opts: Any = None) -> _Done:
        return self._run("_allgather_base", [output], output, tensor, options=opts or dist.AllgatherOptions())

    def barrier(self, opts: Any = None) -> _Done:
        self._gloo.barrier(dist.BarrierOptions()).wait()
        return _Done([])


def initialize_distributed_hpu(world_size: Any = None, rank: Any = None, local_rank: Any = None) -> tuple[int, int, int]:
    """(world size, rank, local rank), from the environment where not given."""
    given = {"WORLD_SIZE": (world_size, 1), "RANK": (rank, 0), "LOCAL_RANK": (local_rank, 0)}
    found = [int(value if value is not None else os.environ.get(name, default)) for name, (value, default) in given.items()]
    return found[0], found[1], found[2]


if "HCCL" not in getattr(dist.Backend, "_plugins", {}):
    dist.Backend.register_backend("hccl", ProcessGroupHccl, devices=["hpu"])
