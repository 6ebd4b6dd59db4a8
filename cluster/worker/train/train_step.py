"""Wraps a workload's model and optimiser and runs one step of training or inference. engine.py holds what differs by engine."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from cluster.worker.train import block_weights, compiling, optimizers, parallel
from cluster.worker.train.checkpointing import SELECTIVE
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.engine import Engine
from cluster.worker.train.rms import RmsWatch, watched_tensors
from cluster.worker.train.step_graph import StepGraphs
from experiments.components.workload import (
    Unsupported,
    compile_units,
    compiled_beside,
    few_shapes,
    graph_units,
    records_itself,
    shard_units,
    step_kind,
    trains,
)
from experiments.parameters import TrainingParameters
from experiments.precision import LOW, around

if TYPE_CHECKING:
    from cluster.devices import Batch, Device
    from experiments.components.layers.kept_weights import KeptWeights
    from experiments.components.workload import Workload


class TrainStep:
    """Implements measure.loop.TrainStepLike. Without training a step is the forward pass alone: no gradient, no optimiser, no DDP.

    The constructor raises Unsupported, and ValueError for `rms_tensors` that match no tensor.
    """

    def __init__(
        self, workload: Workload, model: torch.nn.Module, parameters: TrainingParameters, device: Device, engine: Engine | None = None
    ) -> None:
        self.workload, self.parameters, self.device = workload, parameters, device
        self.engine = engine or choose_engine(parameters, device, world_size=1)
        self.trains = trains(workload)
        if parameters.accumulation_steps > 1 and not self.trains:
            raise Unsupported("accumulation_steps: this workload trains nothing, so there are no gradients to add up; set it to 1")
        if parameters.block_weights != "fp32" and not self.trains:
            raise Unsupported(
                "block_weights: this workload trains nothing, so there is no optimiser to keep weights in fp32; set it to fp32"
            )
        self.sharded = self.engine.sharded and self.trains
        # What was done to linear layers that have a precision of their own, for the journal
        self.converted = self._convert_linears(model)
        # The model without wrappers, for evaluation. A sharded model is moved unit by unit, since a device may be too small for all of it.
        self.plain = (model if self.sharded else model.to(device.torch_device)).train(self.trains)
        self._forward = self.plain.forward
        watched = (
            watched_tensors(self.plain, parameters.rms_tensors) if parameters.rms_tensors and self.trains else {}
        )  # before wrapping changes their names
        layers = workload.layers(self.plain)
        self._masters = block_weights.keep(parameters, layers, device.kind)
        self.engine.prepare_layers(self.plain, layers, few_shapes=few_shapes(workload), beside=compiled_beside(workload, self.plain))
        for part in graph_units(workload, self.plain):
            self.engine.graphs(part, training=self.trains, find_unused=workload.find_unused_parameters)
        self._compile_model(compile_units(workload, self.plain))
        self.model: Any = self.plain
        if self.engine.world_size > 1 and self.trains:
            units = shard_units(workload, self.plain, layers)
            self.model = self.engine.distribute(self.model, find_unused=workload.find_unused_parameters, units=units)
        trained = [parameter for parameter in self.plain.parameters() if parameter.requires_grad]
        self.trained = self._masters.trained(trained) if self._masters else trained  # what the optimiser has
        self.optimizer = self.engine.optimizer(self.trained) if self.trains else None
        if self._masters and parameters.clip_grad_norm is None:  # clipping wants all gradients, in fp32, before the update
            self._masters.hand_over(self.optimizer)
        locked = device.kind == "cuda"
        self.rms = RmsWatch(watched, self.optimizer, page_locked=locked) if watched and self.optimizer else None
        self.scaler = parallel.scaler(device.scaler(around(parameters.precision)), self.model) if self.trains else None
        self._records_itself = parameters.cuda_graph and records_itself(workload)
        recorded = parameters.cuda_graph and not self._records_itself
        self._graphs = StepGraphs(self._compute, trained if self.trains else ()) if recorded else None
        self._all_steps = parameters.warmup_steps + parameters.steps
        # FSDP1 fails where the last micro-batch leaves out parameters that an earlier one used: then ranks exchange gradients each time
        self._micro_batches_alike = getattr(workload, "steps_alike", True)
        self._kept = self._keep_weights()
        if self._kept:
            self._kept.refresh()

    def _convert_linears(self, model: torch.nn.Module) -> str | None:
        """Give the blocks' linear layers the trial's precision where it is theirs alone. Says what was done. Raises Unsupported."""
        if self.parameters.precision not in LOW:
            return None
        from experiments.components.layers.convert import convert  # only now: what it imports takes time that other trials need not spend

        return convert(model, self.workload.layers(model), self.parameters, self.device.kind, trains=self.trains)

    def _keep_weights(self) -> KeptWeights | None:
        """Weights in 8 bits that are cast once for each update, where a precision has such. Shards are cast once they are gathered."""
        if self.parameters.precision not in LOW or self.parameters.kernels != "fused" or self.sharded:
            return None
        from experiments.components.layers.kept_weights import keep

        return keep(self.plain, compiled=self.parameters.compile != "none")

    def _compile_model(self, units: list[torch.nn.Module]) -> None:
        self.engine.compile_model(units)
        if self.engine.records_cuda_graphs and not self.trains:
            for unit in units:  # one may be called often in a step, as a UNet is; what it gave has then been used
                unit.register_forward_pre_hook(compiling.mark_step)

    @property
    def launched(self) -> int:
        """Steps so far that ran without the CUDA graph that the trial asks for; 0 if it asks for none."""
        return self._graphs.launched if self._graphs else 0

    @property
    def recorded(self) -> bool:
        """Whether the trial's steps are replays of CUDA graphs, of which a trace tells the kernels and not what launched them."""
        return self._graphs is not None or self._records_itself

    def leave_graphs_out(self) -> None:
        """From now on steps run without their CUDA graphs, whose memory is released."""
        if self._graphs:
            self._graphs.leave_out()
        elif self._records_itself:
            self.workload.leave_graphs_out()  # type: ignore[attr-defined]  # see records_itself

    def place(self, batch: Batch) -> Batch:
        return self.device.place(batch, self.workload.prepare, prefetch=self.parameters.prefetch_to_device)

    def forward_backward(self, *batches: Batch) -> torch.Tensor:
        """See TrainStepLike. The gradients of several micro-batches add up, each divided by their number: those of the mean loss.

        Ranks exchange gradients in the last one's backward pass alone, unless micro-batches may use different parameters.
        """
        return self._graphs(*batches) if self._graphs else self._compute(*batches)

    def _compute(self, *batches: Batch) -> torch.Tensor:
        if not self.trains:
            with torch.inference_mode(), self._autocast():
                loss = self.workload.loss(self.model, *batches)
                return loss.clone() if self.engine.records_cuda_graphs else loss  # the next step's graph may write where it lies
        *earlier, last = batches
        losses = []
        for batch in earlier:
            with self.gradients_apart(self._micro_batches_alike):
                losses.append(self._backward(batch, len(batches)))
            self.device.flush()
        losses.append(self._backward(last, len(batches)))
        self.engine.after_backward(self.plain)
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _backward(self, batch: Batch, parts: int) -> torch.Tensor:
        """One micro-batch of `parts`. Returns its share of the step's loss."""
        graphed = self.engine.records_cuda_graphs
        if graphed:
            compiling.mark_step()
        with self._autocast():
            loss = self.workload.loss(self.model, batch)
        loss = loss if parts == 1 else loss / parts
        (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach().clone() if graphed else loss.detach()

    def _autocast(self, *, training: bool = True) -> AbstractContextManager[None]:
        precision = self.parameters.precision if self.trains and training else around(self.parameters.precision)
        autocast = self.device.autocast(precision if self.parameters.autocast else "fp32")
        checkpointing = self.parameters.activation_checkpointing
        # A layer's second call in a step would find its weights cast, and its recomputation not: other operations than selective expects
        alike = training and checkpointing == SELECTIVE
        return parallel.casting_anew(autocast) if alike or (self.sharded and (checkpointing or not training)) else autocast

    def update(self, step: int) -> None:
        if self.optimizer is None:
            return
        optimizers.set_rate(self.optimizer, self.learning_rate(step))
        if self._masters:
            self._masters.take_gradients()
        if self.scaler:
            if self.parameters.clip_grad_norm is not None or self.rms:
                self.scaler.unscale_(self.optimizer)  # the limit and RMS_t apply to unscaled gradients
            self.engine.clip(self.model, self.trained)
            self._watch(step)
            self.scaler.step(self.optimizer)  # skips the update if a gradient overflowed
            self.scaler.update()
        else:
            self.engine.clip(self.model, self.trained)
            self._watch(step)
            self.optimizer.step()
        if self._masters:
            self._masters.give_weights()
        if self._kept:
            self._kept.refresh()
        self.engine.after_update(self.optimizer)

    def _watch(self, step: int) -> None:
        if self.rms:
            self.rms.measure(step)

    def diagnostics(self, step: int) -> dict[str, float | None]:
        """Further values of a step that the clock has returned: RMS_t of the tensors in `rms_tensors`."""
        return self.rms.read(step) if self.rms else {}

    def samples(self, batch: Batch) -> int:
        return self.workload.samples(batch)

    def step_kind(self, batch: Batch) -> str | None:
        return step_kind(self.workload, batch)

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step (1-based). It rises linearly over `learning_rate_warmup` steps, then follows the schedule.

        `linear` and `cosine` fall from the full rate to 0 after the last of `warmup_steps` + `steps`. Every later step, of a
        warm-up or window that is to last some time or of what is measured after it, trains at 0: it costs as much and leaves the weights
        as they are.
        """
        if step > self._all_steps:
            return 0.0
        schedule, rate, warmup = self.parameters.learning_rate_schedule, self.parameters.learning_rate, self.parameters.learning_rate_warmup
        if step <= warmup:
            return rate * step / warmup
        progress = (step - 1 - warmup) / max(1, self._all_steps - warmup)
        if schedule == "constant":
            return rate
        return rate * (1 - progress) if schedule == "linear" else rate * (1 + math.cos(math.pi * progress)) / 2

    def evaluate(self) -> dict[str, float]:
        """The workload's held-out metrics in the trial's precision (of a Gaudi's own fp8 in bf16), without compilation and HPU graphs.

        If the model is sharded every rank must call this; otherwise one rank is enough.
        """
        self.plain.eval()
        stepping, self.plain.forward = self.plain.forward, self._forward
        try:
            with torch.no_grad(), torch.compiler.set_stance("force_eager"), self._autocast(training=False):
                return self.workload.evaluate(
                    parallel.callable_of(self.model, self.plain),
                    lambda batch: self.device.place(batch, self.workload.prepare, prefetch=False),
                )
        finally:
            self.plain.forward = stepping
            self.plain.train(self.trains)

    def gradients_apart(self, apart: bool = True) -> AbstractContextManager[Any]:
        """A context whose backward passes keep gradients on their rank. Does nothing if `apart` is False, or without other ranks."""
        return parallel.gradients_apart(self.model) if apart else nullcontext()
