"""How a model's parameters lie over the ranks: `ddp` replicates, `fsdp1` and `fsdp2` shard. The one place that knows, for every workload.

Activation checkpointing composes with each of them: the engine wraps the layers before they come here, so what is gathered for a layer's
forward pass is gathered again for its recomputation. Scaling is that of data parallelism: gradients are means over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from cluster.worker.torch_internals import checkpoint_wrappers
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters

_KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def why_not(parameters: TrainingParameters) -> str | None:
    """Why this strategy does not go with the other parameters; None if it does."""
    strategy = parameters.parallel
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


def distribute(model: nn.Module, parameters: TrainingParameters, place: torch.device, *, find_unused: bool, units: list[nn.Module]) -> Any:
    """The model as a step calls it. `units`: what is gathered at once, inner modules first; the rest is the root's.

    A model to be sharded may lie on the host: its units are moved one by one. Raises Unsupported where there is nothing to shard by.
    """
    if parameters.parallel == "ddp":
        return _replicate(model, parameters, place, find_unused=find_unused)
    if parameters.fsdp_units == "root":
        units = []
    elif not units:
        raise Unsupported(f"parallel {parameters.parallel}: this workload names no layers; fsdp_units root shards the model as one")
    _unscalar(model)
    wrapped = _outermost(model, units)
    return (_shard1 if parameters.parallel == "fsdp1" else _shard2)(model, parameters, place, wrapped)


def scaler(plain: torch.amp.GradScaler | None, model: Any) -> torch.amp.GradScaler | None:
    """fp16's loss scaler, all ranks of one mind about an overflow. FSDP2's gradients are DTensors: their check is over all ranks."""
    if plain is None or not _is_fsdp1(model):
        return plain
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler()


def clip(model: Any, trained: list[nn.Parameter], limit: float) -> None:
    """Limit the norm of all gradients together, the other ranks' shards included."""
    if _is_fsdp1(model):
        model.clip_grad_norm_(limit)
    else:
        torch.nn.utils.clip_grad_norm_(trained, limit)


def callable_of(model: Any, plain: nn.Module) -> nn.Module:
    """What computes the whole model outside a step: `plain`, save under FSDP1, where the parameters exist only inside the wrapper."""
    return model if _is_fsdp1(model) else plain


@contextmanager
def casting_anew(autocast: AbstractContextManager[None]) -> Iterator[None]:
    """`autocast` without its cache, which keeps a low-precision copy of each parameter to the end of the forward pass.

    FSDP2's gathered parameters are cached too, so that half of the whole model would lie on every device when its shards had just been
    freed. Only where nothing else keeps the copies: without checkpointing the backward pass does.
    """
    with autocast:
        before = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            yield
        finally:
            torch.set_autocast_cache_enabled(before)


def _is_fsdp1(model: Any) -> bool:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(model, FullyShardedDataParallel)


def _replicate(model: nn.Module, parameters: TrainingParameters, place: torch.device, *, find_unused: bool) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(
        model,
        device_ids=[place] if place.type == "cuda" else None,
        gradient_as_bucket_view=parameters.ddp_bucket_view,
        static_graph=parameters.ddp_static_graph,
        find_unused_parameters=find_unused and not parameters.ddp_static_graph,
    )


def _shard1(model: nn.Module, parameters: TrainingParameters, place: torch.device, units: list[nn.Module]) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

    chosen = {id(unit) for unit in units}
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in chosen),
        sharding_strategy=ShardingStrategy.FULL_SHARD if parameters.fsdp_reshard else ShardingStrategy.SHARD_GRAD_OP,
        mixed_precision=MixedPrecision(param_dtype=_compute(parameters), reduce_dtype=_KINDS[parameters.fsdp_reduce]),
        limit_all_gathers=parameters.limit_all_gathers,
        device_id=place,
        use_orig_params=True,  # some parameters are frozen, and the optimiser is given parameters, not flat storage
    )


def _shard2(model: nn.Module, parameters: TrainingParameters, place: torch.device, units: list[nn.Module]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(place.type, (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=_compute(parameters), reduce_dtype=_KINDS[parameters.fsdp_reduce])
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=parameters.fsdp_reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=parameters.fsdp_reshard)
    return model


def _compute(parameters: TrainingParameters) -> torch.dtype | None:
    """None: parameters as they are, inputs not cast."""
    return None if parameters.fsdp_compute == "fp32" else _KINDS[parameters.fsdp_compute]


def _outermost(model: nn.Module, units: list[nn.Module]) -> list[nn.Module]:
    """The units with the checkpoint wrapper around them where there is one: it must gather once for a recomputation, not inside it."""
    wrappers = checkpoint_wrappers(model)
    return [wrappers.get(id(unit), unit) for unit in units]


def _unscalar(model: nn.Module) -> None:
    """Give every parameter without a dimension one of length 1: FSDP shards along the first, and broadcasting computes the same."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dim() == 0:
                setattr(module, name, nn.Parameter(parameter.detach().reshape(1), requires_grad=parameter.requires_grad))
