"""Two linear layers, width -> 4 width -> width, trained alone: at which width does low precision win, and what does quantising cost?

A sample is one row (one token). The targets are a fixed random linear map of the inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from experiments.components.workload import Batch, Context
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    import torch
    from torch import nn

BATCHES = 2  # batches that take turns
TIMED = 20  # repetitions of what is timed for the quantise share


class Parameters(TrainingParameters):
    """Width, and how the layers compute."""

    same_work = ("width",)

    width: int = Field(64, ge=16, le=16_384, description="inputs of the first layer; the second has four times as many")
    linear: Literal[
        "plain",
        "switchback",
        "switchback_m",
        "switchback_q",
        "llm_int8",
        "fp8_tensorwise",
        "fp8_switchback",
        "fp8_simulated",
        "fp8_simulated_switchback",
    ] = Field("plain", description="how the layers compute; plain: in the trial's precision")
    kernels: Literal["stock", "fused"] = Field(
        "stock", description="of torch and libraries; or ours, that quantise in one pass (linear switchback, fp8_*)"
    )
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

        from experiments.components.layers import low_precision

        width = self.parameters.width
        model = nn.Sequential(nn.Linear(width, 4 * width), nn.Linear(4 * width, width))
        low_precision.replace(
            model, self.parameters.linear, [(model, "0"), (model, "1")], self.context.device_kind, self.parameters.kernels
        )
        return model

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
            draw = torch.Generator().manual_seed(self.parameters.seed * 1000 + self.context.rank)
            self._batches = [{name: value.to(place) for name, value in self._batch(draw).items()} for _ in range(BATCHES)]
        return self._batches

    def _batch(self, draw: torch.Generator) -> Batch:
        import torch

        x = torch.randn(self.context.batch_size, self.parameters.width, generator=draw)
        return {"x": x, "y": x @ self.map}

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
        """`loss`, and for our own arms `quantise_share`: of the time of a forward and backward pass what quantising takes, timed apart."""
        import torch

        batch = place(self._batch(torch.Generator().manual_seed(2**31 - 1)))
        metrics = {"loss": float(self.loss(model, batch)), "chance_loss": float(batch["y"].square().mean())}
        if self.parameters.linear.startswith("switchback") or self.parameters.kernels == "fused":
            metrics["quantise_share"] = self._quantise_share(model, batch)
        return metrics

    def _quantise_share(self, model: nn.Module, batch: Batch) -> float:
        """Both timed as the trial runs them, compiled if it is: evaluation by itself is eager."""
        import torch

        kind = batch["x"].device.type
        sixteen = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.parameters.precision, torch.float32)
        x = batch["x"].to(sixteen)
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
        """What the arm does to an input or a gradient, and to a weight in a forward and backward pass."""
        from experiments.components.layers import fused, low_precision

        arm = self.parameters.linear
        if self.parameters.kernels == "stock":
            dims = (1, 0) if arm == "switchback_q" else (None, None)
            return lambda x: low_precision.quantise(x, 1), lambda weight: [low_precision.quantise(weight, dim) for dim in dims]
        if arm == "fp8_tensorwise":
            return fused.cast_fp8, fused.cast_fp8
        return (fused.cast_rows if arm == "fp8_switchback" else fused.quantise_rows), lambda weight: fused.cast_tensor(
            weight, fp8=arm == "fp8_switchback"
        )

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

    def flops_per_sample(self) -> float | None:
        """Of a step: forward, input gradient and weight gradient of both layers."""
        width = float(self.parameters.width)
        return 2 * 4 * width * width * (3 + 3)

    def flops_by_precision(self) -> dict[str, float] | None:
        """All products are the arm's."""
        from experiments.components.layers import low_precision

        flops = self.flops_per_sample() or 0.0
        return low_precision.flops_by_precision(self.parameters.linear, self.parameters.precision, flops, flops)
