"""A small network on random vectors: for trials that should cost nothing, and for load that can be set exactly."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from experiments.components.data.loading import load
from experiments.components.workload import Batch, Context
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    import torch
    from torch import nn

POOL_VALUES = 2**22  # numbers held in memory
HELD_OUT_BATCHES = 4
HELD_OUT_SIZE = 32


class Parameters(TrainingParameters):
    """The network's size, and what one input costs."""

    same_work = ("width", "depth", "classes", "input_cost")

    width: int = Field(32, ge=1, le=65_536)
    depth: int = Field(2, ge=1, le=256, description="hidden layers")
    classes: int = Field(8, ge=2, le=4096)
    input_cost: int = Field(
        0, ge=0, le=10_000_000, description="multiplications spent on each input where it is loaded: stands for decoding"
    )
    learning_rate: float = Field(1e-3, gt=0, le=10)


def build(context: Context) -> Synthetic:
    """The workload on this rank."""
    return Synthetic(context)


class Vectors:
    """Random vectors, and the class that a fixed random projection gives each. Row n is row n modulo the pool's size, for ever."""

    def __init__(self, parameters: Parameters, *, held_out: bool = False) -> None:
        import torch

        self.parameters = parameters
        draw = torch.Generator().manual_seed(parameters.seed)
        projection = torch.randn(parameters.width, parameters.classes, generator=draw)
        rows = max(64, min(4096, POOL_VALUES // parameters.width))
        for _ in range(2 if held_out else 1):
            self.vectors = torch.randn(rows, parameters.width, generator=draw)
        self.classes = (self.vectors @ projection).argmax(dim=1)

    def __getitem__(self, rows: range) -> Batch:
        import torch

        for _ in rows:
            _spend(self.parameters.input_cost)
        index = torch.arange(rows.start, rows.stop) % len(self.vectors)
        return {"vectors": self.vectors[index], "classes": self.classes[index]}


class Synthetic:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters

    def model(self) -> nn.Module:
        import torch
        from torch import nn

        torch.manual_seed(self.parameters.seed)
        width = self.parameters.width
        hidden = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(self.parameters.depth)]
        return nn.Sequential(*hidden, nn.Linear(width, self.parameters.classes))

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return list(model.children())

    def batches(self) -> Iterator[Batch]:
        """Each global batch is one range of rows; a rank takes its part, so that all ranks together see what one alone would."""
        return iter(load(Vectors(self.parameters), self._order(), self.context))

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        from torch.nn import functional

        return functional.cross_entropy(model(batch["vectors"]), batch["classes"])

    def samples(self, batch: Batch) -> int:
        return len(batch["vectors"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """Mean loss and accuracy on vectors that training never sees; chance_loss is ln(classes)."""
        losses, right = [], 0
        data = Vectors(self.parameters, held_out=True)
        for number in range(HELD_OUT_BATCHES):
            start = number * HELD_OUT_SIZE
            batch = place(data[range(start, start + HELD_OUT_SIZE)])
            losses.append(float(self.loss(model, batch)))
            right += int((model(batch["vectors"]).argmax(dim=1) == batch["classes"]).sum())
        return {
            "loss": sum(losses) / len(losses),
            "chance_loss": math.log(self.parameters.classes),
            "accuracy": right / (HELD_OUT_BATCHES * HELD_OUT_SIZE),
        }

    def flops_per_sample(self) -> float | None:
        """Three times the forward pass's matrix products."""
        width = float(self.parameters.width)
        return 3 * 2 * (self.parameters.depth * width * width + width * self.parameters.classes)

    def linear_flops_per_sample(self) -> float:
        """Of these, the hidden layers'."""
        return 3.0 * 2 * self.parameters.depth * self.parameters.width**2

    def _order(self) -> Iterator[range]:
        size, world = self.context.batch_size, self.context.world_size
        start = self.context.rank * size
        while True:
            yield range(start, start + size)
            start += size * world


def _spend(multiplications: int) -> float:
    value = random.random()
    for _ in range(multiplications):
        value *= 1.0000001
    return value
