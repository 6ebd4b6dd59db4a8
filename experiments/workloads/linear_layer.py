"""Two linear layers, width -> 4 width -> width, trained alone: at which width does low precision win, and what does quantising cost?

A sample is one row (one token). The targets are a fixed random linear map of the inputs, and noise of the same variance, 1: where a batch
has many times more rows than the width, the loss ends near that of the noise, as a model's ends at what its data leave open. Without noise
the task can be solved exactly, and at losses near 0 loss parity compares roundings. Fewer rows are learnt by heart, noise and all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from pydantic import Field

from experiments.components.workload import Batch, Context
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    import torch
    from torch import nn

BATCHES = 2  # batches that take turns
TIMED = 20  # repetitions of what is timed for the quantise share


class Parameters(TrainingParameters):
    """The layers' width."""

    same_work = ("width",)
    loads = False

    width: int = Field(64, ge=16, le=16_384, description="inputs of the first layer; the second has four times as many")
    learning_rate: float = Field(1e-3, gt=0, le=10)


def build(context: Context) -> LinearLayer:
    """The workload on this rank."""
    return LinearLayer(context)


class LinearLayer:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        import torch

        self.context = context
        self.parameters: Parameters = context.parameters
        draw = torch.Generator().manual_seed(self.parameters.seed)
        width = self.parameters.width
        self.map = torch.randn(width, width, generator=draw) / width**0.5
        self._batches: list[Batch] = []

    def model(self) -> nn.Module:
        from torch import nn

        width = self.parameters.width
        return nn.Sequential(nn.Linear(width, 4 * width), nn.Linear(4 * width, width))

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return list(model.children())

    def batches(self) -> Iterator[Batch]:
        """The numbers of a few batches in turn. `prepare` keeps the batches on the device, so loading them is not measured."""
        import torch

        for number in count():
            yield {"number": number % BATCHES, "place": torch.empty(0)}

    def prepare(self, batch: Batch) -> Batch:
        return batch if "x" in batch else self._kept(batch["place"].device)[batch["number"]]

    def _kept(self, place: torch.device) -> list[Batch]:
        import torch

        if not self._batches:
            draw = torch.Generator().manual_seed(self.parameters.seed * 1000 + self.context.rank + 1)  # seed 0 drew the map
            self._batches = [{name: value.to(place) for name, value in self._batch(draw).items()} for _ in range(BATCHES)]
        return self._batches

    def _batch(self, draw: torch.Generator) -> Batch:
        import torch

        x, noise = (torch.randn(self.context.batch_size, self.parameters.width, generator=draw) for _ in range(2))
        return {"x": x, "y": x @ self.map + noise}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        import torch
        from torch.nn import functional

        x = (
            batch["x"].detach().requires_grad_(torch.is_grad_enabled())
        )  # as inside a model: a backward pass has three products for each layer
        return functional.mse_loss(model(x).float(), batch["y"])

    def samples(self, batch: Batch) -> int:
        return len(batch["x"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """`loss`, and where we quantise `quantise_share`: of the time of a forward and backward pass what that takes, timed apart."""
        import torch

        batch = place(self._batch(torch.Generator().manual_seed(2**31 - 1)))
        metrics = {"loss": float(self.loss(model, batch)), "chance_loss": float(batch["y"].square().mean())}
        if self.parameters.precision.startswith("int8_") or self.parameters.kernels == "fused":
            metrics["quantise_share"] = self._quantise_share(model, batch)
        return metrics

    def _quantise_share(self, model: nn.Module, batch: Batch) -> float:
        """Both timed as the trial runs them, compiled if it is: evaluation by itself is eager."""
        import torch

        kind = batch["x"].device.type
        x = batch["x"].bfloat16()  # as it comes under autocast
        wide = x.repeat(1, 4)
        weights = [parameter.detach() for name, parameter in model.named_parameters() if name.endswith("weight")]
        rows, both = self._quantisers()
        if self.parameters.compile != "none":
            rows, both = torch.compile(rows), torch.compile(both)

        def quantising() -> None:
            for inputs in (x, wide, wide, x):  # of each layer its inputs and its output's gradient
                rows(inputs)
            for weight in weights:
                both(weight)

        def everything() -> None:
            with torch.enable_grad():
                self.loss(model, batch).backward()  # type: ignore[no-untyped-call]
            model.zero_grad()

        with torch.compiler.set_stance("default"):
            return self._seconds(quantising, kind) / self._seconds(everything, kind)

    def _quantisers(self) -> tuple[Callable[[torch.Tensor], object], Callable[[torch.Tensor], object]]:
        """What is done to an input or a gradient, and to a weight in a forward and backward pass."""
        from experiments.components.layers import fused, low_precision

        precision = self.parameters.precision
        if self.parameters.kernels == "stock":
            dims = (1, 0) if precision == "int8_switchback_q" else (None, None)
            return lambda x: low_precision.quantise(x, 1), lambda weight: [low_precision.quantise(weight, dim) for dim in dims]
        if precision == "fp8":
            return fused.cast_fp8, fused.cast_fp8
        fp8 = precision == "fp8_switchback"
        return (fused.cast_rows if fp8 else fused.quantise_rows), lambda weight: fused.cast_tensor(weight, fp8=fp8)

    def _seconds(self, work: Callable[[], None], kind: str) -> float:
        import torch

        for _ in range(3):
            work()
        if kind == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(TIMED):
            work()
        if kind == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / TIMED

    def flops_per_sample(self) -> float:
        """Of a step: forward, input gradient and weight gradient of both layers."""
        width = float(self.parameters.width)
        return 2 * 4 * width * width * (3 + 3)

    def linear_flops_per_sample(self) -> float:
        """All of them."""
        return self.flops_per_sample()
