"""Makes a workload's model ready to train, or to infer, as the trial asks: placement, checkpointing, compilation, DDP, optimiser."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from experiments.parameters import TrainingParameters
from experiments.workloads._protocol import Unsupported, trains

if TYPE_CHECKING:
    from cluster.devices import Device
    from cluster.worker.loop import Batch
    from experiments.workloads._protocol import Workload


class TorchLearner:
    """See cluster.worker.loop.Learner. Where nothing is trained a step is the forward pass: no gradient, no optimiser, no DDP."""

    def __init__(
        self, workload: Workload, model: torch.nn.Module, parameters: TrainingParameters, device: Device, world_size: int = 1
    ) -> None:
        self.workload, self.parameters, self.device = workload, parameters, device
        self.trains = trains(workload)
        self.plain = model.to(device.torch_device).train(self.trains)  # what is evaluated, whatever wraps it
        layers = workload.layers(self.plain)
        self._compile_layers(layers)
        self._checkpoint(layers)
        self.model: Any = self.plain
        if parameters.compile == "model":
            self.model = torch.compile(self.plain)
        if world_size > 1 and self.trains:
            self.model = self._distribute()
        self.trained = [parameter for parameter in self.plain.parameters() if parameter.requires_grad]
        self.optimizer = self._optimizer() if self.trains else None
        self.scaler = device.scaler(parameters.precision) if self.trains else None
        self._all_steps = parameters.warmup_steps + parameters.steps

    def place(self, batch: Batch) -> Batch:
        return self.device.place(batch, self.workload.prepare, prefetch=self.parameters.prefetch_to_device)

    def learn(self, batch: Batch) -> torch.Tensor:
        if not self.trains:
            with torch.inference_mode(), self.device.autocast(self.parameters.precision):
                return self.workload.loss(self.model, batch)
        with self.device.autocast(self.parameters.precision):
            loss = self.workload.loss(self.model, batch)
        (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def update(self, step: int) -> None:
        if self.optimizer is None:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        if self.scaler:
            self.scaler.step(self.optimizer)  # skips the step if a gradient overflowed
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def samples(self, batch: Batch) -> int:
        return self.workload.samples(batch)

    def learning_rate(self, step: int) -> float:
        """Of a step (1-based). Linear: from the full rate to 0 after the last step; steps beyond it train at 0."""
        if self.parameters.learning_rate_schedule == "constant":
            return self.parameters.learning_rate
        return self.parameters.learning_rate * max(0.0, 1 - (step - 1) / self._all_steps)

    def evaluate(self) -> dict[str, float]:
        """The workload's held-out metrics in the trial's precision, with what compilation made left aside."""
        self.plain.eval()
        try:
            with torch.no_grad(), torch.compiler.set_stance("force_eager"), self.device.autocast(self.parameters.precision):
                return self.workload.evaluate(self.plain, lambda batch: self.device.place(batch, self.workload.prepare, prefetch=False))
        finally:
            self.plain.train(self.trains)

    def gradients_apart(self, apart: bool = True) -> AbstractContextManager[Any]:
        """Steps inside leave each rank its own gradients: DDP's no_sync(). Nothing where `apart` is false or there is no DDP."""
        return self.model.no_sync() if apart and hasattr(self.model, "no_sync") else nullcontext()

    def _compile_layers(self, layers: list[torch.nn.Module]) -> None:
        if self.parameters.compile != "layer":
            return
        if not layers:
            raise Unsupported("compile layer: this workload names no layers")
        for layer in layers:
            layer.compile()

    def _checkpoint(self, layers: list[torch.nn.Module]) -> None:
        if not self.parameters.activation_checkpointing:
            return
        if not layers:
            raise Unsupported("activation_checkpointing: this workload names no layers")
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

        chosen = {id(layer) for layer in layers}
        apply_activation_checkpointing(self.plain, check_fn=lambda module: id(module) in chosen)

    def _distribute(self) -> torch.nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        place = self.device.torch_device
        return DistributedDataParallel(
            self.model,
            device_ids=None if place.type == "cpu" else [place],
            gradient_as_bucket_view=self.parameters.ddp_bucket_view,
            static_graph=self.parameters.ddp_static_graph,
            find_unused_parameters=self.workload.find_unused_parameters and not self.parameters.ddp_static_graph,
        )

    def _optimizer(self) -> torch.optim.Optimizer:
        kind = self.parameters.optimizer
        return torch.optim.AdamW(
            self.trained,
            lr=self.parameters.learning_rate,
            betas=(0.9, self.parameters.beta2),
            weight_decay=self.parameters.weight_decay,
            foreach=kind == "foreach",
            fused=kind == "fused",
        )
