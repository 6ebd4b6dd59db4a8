"""What a device's memory held when it ran out: parameters, gradients, optimiser states, activations, cache, as the reason of the trial.

Parameters, gradients and states are counted tensor by tensor, each storage once; what torch has allocated beyond them is activations and
the rest: workspaces, buckets of gradients, the batch. It is read while the exception still holds the failed step, before anything is freed.
Optimiser states exist from the first update on: a step before it that does not fit has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cluster.devices import Device, DeviceMemory
from cluster.worker.outcome import TrialEnded, classify
from cluster.worker.torch_internals import plain_parts
from experiments.trial import Outcome

if TYPE_CHECKING:
    from cluster.worker.train.train_step import TrainStep

GIB = 2**30
_ASKED = re.compile(r".*?Tried to allocate [\d.]+ \w+")  # how torch's message on CUDA begins
_HEAD = 150  # characters of another message


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a device's memory by what they hold; together all that the device has."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int  # and whatever else torch has allocated
    cache: int  # reserved by torch and not allocated: kept for later, or too fragmented
    outside: int  # not torch's: the driver's, libraries' such as NCCL, other processes'
    free: int

    @classmethod
    def of(cls, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, memory: DeviceMemory, kind: str) -> MemoryUse:
        """The use of `memory`, of which `model` and `optimizer` have their tensors of device kind `kind`.

        Buffers count as parameters, fp32 copies of bf16 parameters as states of the optimiser.
        """
        weights = list(model.parameters())
        parameters = bytes_of([*weights, *model.buffers()], kind)
        own = [*weights, *masters(weights, optimizer)]
        gradients = bytes_of((weight.grad for weight in own if weight.grad is not None), kind)
        states = bytes_of([*_states(optimizer), *own[len(weights) :]], kind) if optimizer else 0
        return cls(
            parameters,
            gradients,
            states,
            activations=max(0, memory.allocated - parameters - gradients - states),
            cache=memory.reserved - memory.allocated,
            outside=max(0, memory.total - memory.free - memory.reserved),
            free=memory.free,
        )

    def sentence(self, total: int) -> str:
        """Of `total` bytes, what held how much, in GiB."""
        parts = {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimiser states": self.optimizer,
            "activations and the rest": self.activations,
            "cache or fragments": self.cache,
            "outside torch": self.outside,
            "free": self.free,
        }
        return f"of {total / GIB:.2f} GiB: " + ", ".join(f"{name} {held / GIB:.2f}" for name, held in parts.items())


def bytes_of(tensors: Iterable[torch.Tensor], kind: str) -> int:
    """Bytes of the storages of `tensors` on devices of `kind` (`cuda`), each storage once. Of a sharded tensor: of this rank's part."""
    storages = [part.untyped_storage() for tensor in tensors for part in plain_parts(tensor) if part.device.type == kind]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@contextmanager
def explaining_memory(train_step: TrainStep, device: Device) -> Iterator[None]:
    """Where the block runs out of the device's memory, raise TrialEnded with what it held, from the error. Other errors pass."""
    try:
        yield
    except Exception as error:
        ending = classify(error)
        if ending.outcome is not Outcome.DOES_NOT_FIT:
            raise
        try:
            memory = device.memory()
        except RuntimeError:  # the device answers nothing any more
            memory = None
        if memory is None:
            raise
        use = MemoryUse.of(train_step.plain, train_step.optimizer, memory, device.torch_device.type)
        raise TrialEnded(Outcome.DOES_NOT_FIT, f"{_asked(ending.reason or '')}; {use.sentence(memory.total)}") from error


def _asked(reason: str) -> str:
    """The part of an error's message that says how much was asked for, in vain."""
    found = _ASKED.match(reason)
    return found.group() if found else reason[:_HEAD]


def masters(weights: Iterable[torch.Tensor], optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    """What an optimiser updates that is no parameter of the model: fp32 copies of bf16 ones."""
    own = {id(weight) for weight in weights}
    return [one for group in (optimizer.param_groups if optimizer else ()) for one in group["params"] if id(one) not in own]


def _states(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))
