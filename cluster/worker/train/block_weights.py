"""Weights of a model's blocks kept in bf16, with fp32 copies, the masters, that the optimiser updates (Micikevicius et al. 2018, 3.1).

Under autocast parameters are fp32, and each pass casts them and their gradients: two small kernels for each parameter and pass. Kept in
bf16 they are cast once for each update, all in a few kernels.

linear_bf16: weights and biases of the blocks' linear layers, which autocast would cast to bf16. Their gradients are computed in bf16 and
then cast to fp32, as autocast's are, so all numbers are those of autocast. bf16: all parameters of the blocks, which then compute without
autocast: norms, still computed in fp32, give bf16, and so does the residual stream, which halves what both read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from cluster.worker.train.bf16_states import AdamWBf16States
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters

_LINEAR = (nn.Linear, nn.MultiheadAttention)  # the latter holds the weights of its first product itself


def why_not(parameters: TrainingParameters) -> str | None:
    """Why block_weights cannot be combined with the other parameters; None if it can."""
    if parameters.block_weights == "fp32":
        return None
    said = f"block_weights {parameters.block_weights}"
    if parameters.devices > 1:
        return f"{said}: on one device; on several fsdp_compute bf16 keeps what is gathered in bf16"
    if parameters.engine != "native":
        return f"{said}: only with engine native, {parameters.engine} brings optimisers of its own"
    return f"{said}: rms_tensors would name bf16 parameters, and the optimiser has the fp32 ones" if parameters.rms_tensors else None


def keep(parameters: TrainingParameters, blocks: Sequence[nn.Module], device_kind: str) -> Masters | None:
    """Cast the parameters that `block_weights` names, in place, and have blocks compute in bf16 if it says so.

    Call it when the model is on its device, before anything is compiled. Raises Unsupported for a workload without blocks.
    """
    if parameters.block_weights == "fp32":
        return None
    if not blocks:
        raise Unsupported(f"block_weights {parameters.block_weights}: this workload names no layers")
    linear_only = parameters.block_weights == "linear_bf16"
    modules = (module for block in blocks for module in block.modules() if isinstance(module, _LINEAR) or not linear_only)
    chosen = {id(one): one for module in modules for one in module.parameters(recurse=False) if one.dtype is torch.float32}
    if not linear_only:
        for block in {id(block): block for block in blocks}.values():
            block.forward = _in_bf16(block.forward, device_kind)
    return Masters(list(chosen.values()))


def _in_bf16(forward: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """A block's forward without autocast; tensors of floating point that it is given are cast to bf16."""

    def cast(value: Any) -> Any:
        return value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    def computed(*arguments: Any, **named: Any) -> Any:
        with torch.autocast(kind, enabled=False):
            return forward(*[cast(value) for value in arguments], **{name: cast(value) for name, value in named.items()})

    return computed


class Masters:
    """fp32 copies of parameters, which become bf16: those with a gradient. The optimiser updates the copies."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._kept = [one for one in parameters if one.requires_grad]
        self._masters = [nn.Parameter(one.detach().clone()) for one in self._kept]
        self._handed_over = False
        self._learning: list[tuple[nn.Parameter, nn.Parameter]] = []  # (master, kept) of those that the last step used
        for one in parameters:
            one.data = one.data.bfloat16()

    def trained(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        """The same parameters, each that is kept in bf16 replaced by its master."""
        masters = {id(kept): master for kept, master in zip(self._kept, self._masters, strict=True)}
        return [masters.get(id(one), one) for one in parameters]

    def hand_over(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Have an optimiser that can do so read the gradients where they are, and write the parameters, as it updates the masters."""
        if isinstance(optimizer, AdamWBf16States):
            optimizer.take_kept(dict(zip(self._masters, self._kept, strict=True)))
            self._handed_over = True

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Give the masters the gradients of a backward pass, in fp32, and take them from the parameters."""
        if self._handed_over:
            return
        found = [(master, kept, kept.grad) for master, kept in zip(self._masters, self._kept, strict=True) if kept.grad is not None]
        self._learning = [(master, kept) for master, kept, _ in found]
        gradients = [torch.empty_like(master) for master, *_ in found]
        if found:
            torch._foreach_copy_(gradients, [gradient for *_, gradient in found])
        for (master, kept, _), gradient in zip(found, gradients, strict=True):
            master.grad, kept.grad = gradient, None

    @torch.no_grad()
    def give_weights(self) -> None:
        """Round the updated masters to the parameters: those that got a gradient, since no optimiser touches the others."""
        if self._handed_over:
            for one in self._kept:
                one.grad = None  # which the optimiser read
            return
        if self._learning:
            masters, kept = zip(*self._learning, strict=True)
            torch._foreach_copy_(list[torch.Tensor](kept), list[torch.Tensor](masters))
