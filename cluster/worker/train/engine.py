"""Engines: how a model is trained. `native`, here, is plain torch on any device; `optimum_habana` is in engine_habana.py.

An engine provides the parts of a train step that differ between the two. It changes how a step is computed, but not the loss or the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from cluster.worker import torch_internals
from cluster.worker.train import checkpointing, compiling, optimizers, parallel
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters

if TYPE_CHECKING:
    from cluster.devices import Device


class Engine:
    """The engine `native`: plain torch."""

    def __init__(self, parameters: TrainingParameters, device: Device, world_size: int) -> None:
        self.parameters, self.device, self.world_size = parameters, device, world_size

    def adapt(self) -> None:
        """Called before the model is built."""

    def prepare_layers(
        self, model: torch.nn.Module, layers: list[torch.nn.Module], *, few_shapes: bool = False, beside: Sequence[torch.nn.Module] = ()
    ) -> None:
        """Compile the layers and have the backward pass recompute their activations, as the trial asks. Raises Unsupported.

        `few_shapes`: see compiling.settings. `beside`: what is compiled as layers are, and not recomputed.
        """
        if self.parameters.activation_checkpointing == checkpointing.SELECTIVE:
            # Compiled with the wrapper around it: of a layer that is compiled already no operation would be seen, and so none kept
            self._checkpoint(model, layers)
            self._compile_layers(parallel.outermost(model, layers), beside, few_shapes=few_shapes)
        else:
            self._compile_layers(layers, beside, few_shapes=few_shapes)
            self._checkpoint(model, layers)

    def _compile_layers(self, layers: list[torch.nn.Module], beside: Sequence[torch.nn.Module], *, few_shapes: bool) -> None:
        """Compile each layer in place if the trial asks for it. Raises Unsupported for a workload that names no layers."""
        if self.parameters.compile != "layer":
            return
        if not layers:
            raise Unsupported("compile layer: this workload names no layers")
        compiling.prepare(self.parameters)
        compiling.allow_graphs()
        for layer in (*layers, *beside):
            layer.compile(**compiling.settings(self.parameters, self.device, few_shapes=few_shapes))

    def compile_model(self, units: list[torch.nn.Module]) -> None:
        """Compile the model, or the parts of it that the workload names, in place if the trial asks for compile model.

        Of each what it computes: its hooks run outside, and its parameters keep their names.
        """
        if self.parameters.compile == "model":
            compiling.prepare(self.parameters)
            for unit in units:
                unit.forward = torch.compile(unit.forward, **compiling.settings(self.parameters, self.device))

    @property
    def records_cuda_graphs(self) -> bool:
        """Whether torch.compile records CUDA graphs."""
        return compiling.records_cuda_graphs(self.parameters, self.device)

    def _checkpoint(self, model: torch.nn.Module, layers: list[torch.nn.Module]) -> None:
        """Make the backward pass recompute the layers' activations if the trial asks for it. Raises Unsupported if that is impossible."""
        if not self.parameters.activation_checkpointing:
            return
        if self.device.kind == "hpu" and not getattr(model, "supports_gradient_checkpointing", True):
            raise Unsupported(f"activation_checkpointing: {type(model).__name__} refuses gradient checkpointing")
        if not layers:
            raise Unsupported("activation_checkpointing: this workload names no layers")
        selective = self.parameters.activation_checkpointing == checkpointing.SELECTIVE
        torch_internals.checkpoint(model, layers, checkpointing.contexts if selective else None)

    def graphs(self, model: torch.nn.Module, *, training: bool, find_unused: bool) -> None:
        """Replace the model's forward by HPU graphs, recorded at the first use of each input shape, if the trial asks for it."""
        if not self.parameters.hpu_graphs:
            return
        from habana_frameworks.torch import hpu

        if training:
            hpu.ModuleCacher()(model=model, inplace=True, allow_unused_input=find_unused)
        else:
            hpu.wrap_in_hpu_graph(model)

    @property
    def sharded(self) -> bool:
        """Whether no device holds the whole model. Then every rank must take part in each call of the model."""
        return self.world_size > 1 and self.parameters.parallel != "ddp"

    def distribute(self, model: Any, *, find_unused: bool, units: list[torch.nn.Module]) -> Any:
        """The model as a step on several devices calls it: replicated with averaged gradients, or sharded by `units`. See parallel.py.

        Raises Unsupported where CUDA graphs would hold the gradients, or parameters that come and go.
        """
        if self.records_cuda_graphs or self.parameters.cuda_graph:
            asked = "cuda_graph" if self.parameters.cuda_graph else f"compile_mode {self.parameters.compile_mode}"
            instead = "set it to false" if self.parameters.cuda_graph else "use default or max-autotune-no-cudagraphs"
            raise Unsupported(
                f"{asked}: on several devices CUDA graphs hold gradients that the all-reduce "
                f"still reads, or parameters that FSDP moves; {instead}"
            )
        return parallel.distribute(model, self.parameters, self.device.torch_device, find_unused=find_unused, units=units)

    def optimizer(self, trained: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser of the trained parameters. Raises Unsupported."""
        return optimizers.build(self.parameters, trained)

    def after_backward(self, model: torch.nn.Module) -> None:
        """Called after a step's backward pass, whose gradients the device may still be computing."""
        self.device.flush()

    def clip(self, model: Any, trained: list[torch.nn.Parameter]) -> None:
        """Limit the norm of all gradients together. `model` is the result of `distribute`."""
        if self.parameters.clip_grad_norm is not None:
            parallel.clip(model, trained, self.parameters.clip_grad_norm)

    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Called after the optimiser's step: reset the gradients for the next step."""
        self.device.flush()
        optimizer.zero_grad(set_to_none=not self.parameters.hpu_graphs)  # a graph writes to the recorded addresses
