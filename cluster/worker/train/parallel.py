"""Distribute a model's parameters over the ranks: `ddp` replicates, `fsdp1` and `fsdp2` shard. Only this module depends on the strategy.

All strategies are data-parallel: gradients are means over the ranks. Each can be combined with activation checkpointing: the engine wraps
the layers before they come here, so a layer's parameters are gathered for its forward pass and again for its recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from cluster.worker.torch_internals import checkpoint_wrappers
from experiments.components.layers.autocast import weights_cast_anew
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters

_KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def why_not(parameters: TrainingParameters) -> str | None:
    """Why this strategy cannot be combined with the other parameters; None if it can."""
    strategy = parameters.parallel
    if strategy == "ddp" and parameters.devices > 1 and parameters.ddp_static_graph and parameters.accumulation_steps > 1:
        return "ddp_static_graph: torch's DDP fails where its first backward pass exchanges no gradients, as with accumulation_steps"
    if strategy == "ddp" or parameters.devices == 1:
        return (
            None if parameters.fsdp_compute == "fp32" else f"fsdp_compute {parameters.fsdp_compute}: only with shards, on several devices"
        )
    if parameters.engine != "native":
        return f"parallel {strategy}: only with engine native"
    if parameters.hpu_graphs:
        return f"parallel {strategy}: hpu_graphs record where a parameter lies, and a sharded one moves"
    if parameters.compile == "model":
        return f"parallel {strategy}: a graph of the whole model would gather all of it; compile layer goes with it"
    return None


def distribute(model: nn.Module, parameters: TrainingParameters, device: torch.device, *, find_unused: bool, units: list[nn.Module]) -> Any:
    """The model as a step calls it, on `device`. `units`: modules whose parameters are gathered together, inner ones first.

    Parameters outside all units form the root unit. A model to be sharded may be on the host; its units are moved to the device one by
    one. Raises Unsupported if the workload names no layers to shard by.
    """
    if parameters.parallel == "ddp":
        return _replicate(model, parameters, device, find_unused=find_unused)
    if parameters.fsdp_units == "root":
        units = []
    elif not units:
        raise Unsupported(f"parallel {parameters.parallel}: this workload names no layers; fsdp_units root shards the model as one")
    _add_dimension_to_scalars(model)
    wrapped = outermost(model, units)
    return (_shard1 if parameters.parallel == "fsdp1" else _shard2)(model, parameters, device, wrapped)


def scaler(plain: torch.amp.GradScaler | None, model: Any) -> torch.amp.GradScaler | None:
    """The fp16 loss scaler, such that all ranks agree on an overflow. FSDP2's gradients are DTensors, whose check spans all ranks."""
    if plain is None or not _is_fsdp1(model):
        return plain
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler()


def clip(model: Any, trained: list[nn.Parameter], limit: float) -> None:
    """Limit the norm of all gradients together, including the other ranks' shards."""
    if _is_fsdp1(model):
        model.clip_grad_norm_(limit)
    else:
        torch.nn.utils.clip_grad_norm_(trained, limit)


@contextmanager
def gradients_apart(model: Any) -> Iterator[None]:
    """Backward passes inside add to each rank's own gradients, which are not averaged; the first one after it averages their sum.

    Shards are no help there: each rank then has the gradients of the whole model. Does nothing on one device.
    """
    if hasattr(model, "set_requires_gradient_sync"):  # FSDP2
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
        return
    with model.no_sync() if hasattr(model, "no_sync") else nullcontext():  # DDP, FSDP1
        yield


def callable_of(model: Any, plain: nn.Module) -> nn.Module:
    """The module to call outside a step: `plain`, except under FSDP1, whose parameters exist only inside the wrapper."""
    return model if _is_fsdp1(model) else plain


@contextmanager
def casting_anew(autocast: AbstractContextManager[None]) -> Iterator[None]:
    """`autocast` without its cache, which keeps a low-precision copy of each parameter until the end of the forward pass.

    The cache would also hold FSDP2's gathered parameters: a low-precision copy of the whole model on every device, after its shards were
    freed. This helps only with checkpointing or without training; otherwise the backward pass keeps the copies anyway.
    """
    with autocast, weights_cast_anew():
        yield


def _is_fsdp1(model: Any) -> bool:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(model, FullyShardedDataParallel)


def _replicate(model: nn.Module, parameters: TrainingParameters, device: torch.device, *, find_unused: bool) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=parameters.ddp_bucket_view,
        static_graph=parameters.ddp_static_graph,
        find_unused_parameters=find_unused and not parameters.ddp_static_graph,
    )


def _shard1(model: nn.Module, parameters: TrainingParameters, device: torch.device, units: list[nn.Module]) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

    unit_ids = {id(unit) for unit in units}
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in unit_ids),
        sharding_strategy=ShardingStrategy.FULL_SHARD if parameters.fsdp_reshard else ShardingStrategy.SHARD_GRAD_OP,
        mixed_precision=MixedPrecision(param_dtype=_compute(parameters), reduce_dtype=_KINDS[parameters.fsdp_reduce]),
        limit_all_gathers=parameters.limit_all_gathers,
        device_id=device,
        use_orig_params=True,  # some parameters are frozen, and the optimiser takes the original parameters
    )


def _shard2(model: nn.Module, parameters: TrainingParameters, device: torch.device, units: list[nn.Module]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=_compute(parameters), reduce_dtype=_KINDS[parameters.fsdp_reduce])
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=parameters.fsdp_reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=parameters.fsdp_reshard)
    return model


def _compute(parameters: TrainingParameters) -> torch.dtype | None:
    """The type of gathered parameters; None: their own type, and inputs are not cast."""
    return None if parameters.fsdp_compute == "fp32" else _KINDS[parameters.fsdp_compute]


def outermost(model: nn.Module, units: list[nn.Module]) -> list[nn.Module]:
    """Each unit, or its checkpoint wrapper if there is one, so that a recomputation gathers the parameters once, outside the wrapper."""
    wrappers = checkpoint_wrappers(model)
    return [wrappers.get(id(unit), unit) for unit in units]


def _add_dimension_to_scalars(model: nn.Module) -> None:
    """Give each 0-dimensional parameter the shape (1,): FSDP shards along the first dimension. Broadcasting gives the same results."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dim() == 0:
                setattr(module, name, nn.Parameter(parameter.detach().reshape(1), requires_grad=parameter.requires_grad))
