"""Training as optimum-habana does it on a Gaudi: its model classes, its fast DDP, Habana's fused optimiser and clip.

Its trainer is not used: the measured loop is ours on every device. What its trainer does beyond that loop (it puts args.bf16 back to False,
and does not divide the loss by the number of accumulated gradients) therefore cannot reach a trial.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cluster.worker.train.engine import Engine
from experiments.components.workload import Unsupported

# optimum-habana 1.21.2 replaces these by classes that transformers 4.55's CLIP text and vision models do not fit: text raises, vision
# computes something else without a word. CLIP runs on a Gaudi with transformers' own.
CLIP_CLASSES = ("CLIPVisionEmbeddings", "CLIPAttention", "CLIPEncoderLayer", "CLIPEncoder", "CLIPVisionTransformer", "CLIPVisionModel")
_adapted = False


def adapt() -> None:
    """optimum-habana's changes to transformers, once in a process, with CLIP's classes put back. Raises Unsupported without it."""
    global _adapted  # noqa: PLW0603  # what it changes is the process's
    if _adapted:
        return
    try:
        with _own_programs():
            from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi
    except ImportError as error:
        raise Unsupported(f"engine optimum_habana: optimum-habana cannot be imported here ({error})") from error
    with clip_kept():
        adapt_transformers_to_gaudi()
    _adapted = True


@contextmanager
def _own_programs() -> Iterator[None]:
    """This Python's programs first on PATH: optimum-habana asks `pip` for the bridge's version when imported, and fails on another's."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before or os.defpath])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


@contextmanager
def clip_kept() -> Iterator[None]:
    """CLIP's classes as they were, whatever replaced them meanwhile."""
    from transformers.models.clip import modeling_clip

    before = {name: getattr(modeling_clip, name) for name in CLIP_CLASSES if hasattr(modeling_clip, name)}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(modeling_clip, name, value)


class OptimumHabana(Engine):
    """See Engine."""

    def adapt(self) -> None:
        adapt()

    @property
    def _fast(self) -> bool:
        return self.parameters.ddp == "fast" and self.world_size > 1

    def distribute(self, model: Any, *, find_unused: bool, units: list[torch.nn.Module]) -> Any:
        if not self._fast:
            return super().distribute(model, find_unused=find_unused, units=units)
        for value in (*model.parameters(), *model.buffers()):  # torch's DDP does this when it is made
            torch.distributed.broadcast(value.data, src=0)
        return model

    def optimizer(self, trained: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        if self.parameters.optimizer != "fused":
            return super().optimizer(trained)
        from habana_frameworks.torch.hpex.optimizers import FusedAdamW

        optimizer: torch.optim.Optimizer = FusedAdamW(
            trained,
            lr=self.parameters.learning_rate,
            betas=(0.9, self.parameters.beta2),
            eps=self.parameters.adam_eps,  # its own default is 1e-6, and its weight decay 0: other training
            weight_decay=self.parameters.weight_decay,
        )
        if self.parameters.clip_grad_norm is not None:
            from habana_frameworks.torch.hpex.normalization import FusedClipNorm

            self._clip = FusedClipNorm(trained, self.parameters.clip_grad_norm)
        return optimizer

    def after_backward(self, model: torch.nn.Module) -> None:
        super().after_backward(model)
        if not self._fast:
            return
        from optimum.habana.distributed import all_reduce_gradients

        kind = torch.bfloat16 if self.parameters.precision == "bf16" else torch.float32
        all_reduce_gradients(model, fusion_buffer_dtype=kind, use_hpu_graphs=True)

    def clip(self, model: Any, trained: list[torch.nn.Parameter]) -> None:
        if self.parameters.clip_grad_norm is not None and self.parameters.optimizer == "fused":
            self._clip.clip_norm(trained)
        else:
            super().clip(model, trained)

    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        self.device.flush()
        # fast DDP packs gradients by a recorded graph: gradients made anew would not be in it, and the ranks would drift apart unseen
        optimizer.zero_grad(set_to_none=not (self._fast or self.parameters.hpu_graphs))
