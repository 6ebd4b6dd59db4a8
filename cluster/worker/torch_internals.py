"""What torch does not document and a trial needs all the same. tests/cluster/worker/test_internals.py fails on a torch that moved it.

What reaches into Ray's internals, and into torch's for Ray, is in ray_train.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def compile_seconds() -> float | None:
    """Seconds torch.compile has spent in this process, as dynamo counts them; None on a torch that does not tell."""
    try:
        from torch._dynamo.utils import compilation_time_metrics

        spent = compilation_time_metrics.get("_compile.compile_inner") or compilation_time_metrics.get("compile_inner")
        return float(sum(spent)) if spent else None
    except (ImportError, TypeError):
        return None


def count_cycles(cycles: int) -> None:
    """Keep the current CUDA stream busy for so many cycles of the device's clock. Nobody waits."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def checkpoint(model: nn.Module, layers: Iterable[nn.Module]) -> None:
    """Wrap the layers in place, so that their activations are recomputed in the backward pass."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    chosen = {id(layer) for layer in layers}
    apply_activation_checkpointing(model, check_fn=lambda module: id(module) in chosen)


def checkpoint_wrappers(model: nn.Module) -> dict[int, nn.Module]:
    """By the id of each module that `checkpoint` wrapped: the wrapper."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

    return {id(module._checkpoint_wrapped_module): module for module in model.modules() if isinstance(module, CheckpointWrapper)}
