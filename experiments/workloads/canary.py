"""What a nightly run measures beside its cells to see how the node is: a small network of fixed shape on fixed data.

This file does not change with the workloads it watches over; it shares only the measured loop with them. If it is slower than it was,
the node is, unless its code or its libraries changed too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from experiments.components.workload import Batch, Context
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    import torch
    from torch import nn


class Parameters(TrainingParameters):
    """The size of the load."""

    same_work = ("width", "depth")
    loads = False

    width: int = Field(128, ge=1, le=65_536)
    depth: int = Field(2, ge=1, le=64)
    learning_rate: float = Field(1e-3, gt=0, le=10)


def build(context: Context) -> Canary:
    """The workload on this rank."""
    return Canary(context)


class Canary:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters

    def model(self) -> nn.Module:
        from torch import nn

        width = self.parameters.width
        return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(self.parameters.depth)))

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return list(model.children())

    def batches(self) -> Iterator[Batch]:
        """The same batch for ever."""
        import torch

        draw = torch.Generator().manual_seed(self.parameters.seed + self.context.rank)
        batch = {"x": torch.randn(self.context.batch_size, self.parameters.width, generator=draw)}
        while True:
            yield batch

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        from torch.nn import functional

        return functional.mse_loss(model(batch["x"]).float(), batch["x"])

    def samples(self, batch: Batch) -> int:
        return len(batch["x"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """On its own batch: there is nothing to learn here."""
        return {"loss": float(self.loss(model, place(next(self.batches()))))}

    def flops_per_sample(self) -> float | None:
        """Three times the forward pass's matrix products."""
        return 3 * 2 * float(self.parameters.depth * self.parameters.width**2)
