"""The engine `optimum_habana` on a Gaudi: optimum-habana's model classes and fast DDP, and Habana's fused optimiser and clipping.

It does not use optimum-habana's trainer, since the measured loop is the same on every device. The trainer's own behaviour therefore
cannot affect a trial: it resets args.bf16 to False, and does not divide the loss by the number of accumulated gradients.
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
from experiments.precision import around

# optimum-habana 1.21.2 replaces these by classes that do not fit the CLIP models of transformers 4.55: the text model raises, the vision
# model silently computes something else. On a Gaudi CLIP therefore runs with the classes of transformers.
CLIP_CLASSES = ("CLIPVisionEmbeddings", "CLIPAttention", "CLIPEncoderLayer", "CLIPEncoder", "CLIPVisionTransformer", "CLIPVisionModel")
_adapted = False


def adapt() -> None:
    """Apply optimum-habana's changes to transformers, once per process, except to CLIP. Raises Unsupported without optimum-habana."""
    global _adapted  # noqa: PLW0603  # the changes are global to the process
    if _adapted:
        return
    try:
        with _own_programs():
            from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi
    except ImportError as error:
        raise Unsupported(f"engine optimum_habana: optimum-habana cannot be imported here ({error})") from error
    with preserve_clip_classes():
        adapt_transformers_to_gaudi()
    _adapted = True


@contextmanager
def _own_programs() -> Iterator[None]:
    """Put this Python's programs first on PATH: on import optimum-habana asks `pip` for the bridge's version, and needs this Python's."""
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
def preserve_clip_classes() -> Iterator[None]:
    """Restore CLIP's classes at the end of the block, whatever replaced them inside."""
    from transformers.models.clip import modeling_clip

    before = {name: getattr(modeling_clip, name) for name in CLIP_CLASSES if hasattr(modeling_clip, name)}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(modeling_clip, name, value)


class OptimumHabana(Engine):
    """The engine `optimum_habana`; its methods are documented in Engine."""

    def adapt(self) -> None:
        adapt()

    @property
    def _fast(self) -> bool:
        return self.parameters.ddp == "fast" and self.world_size > 1

    def distribute(self, model: Any, *, find_unused: bool, units: list[torch.nn.Module]) -> Any:
        if not self._fast:
            return super().distribute(model, find_unused=find_unused, units=units)
        for value in (*model.parameters(), *model.buffers()):  # as torch's DDP does when it is constructed
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
            eps=self.parameters.adam_eps,  # by default 1e-6, and weight decay 0, which would train differently
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

        kind = torch.bfloat16 if around(self.parameters.precision) == "bf16" else torch.float32
        all_reduce_gradients(model, fusion_buffer_dtype=kind, use_hpu_graphs=True)

    def clip(self, model: Any, trained: list[torch.nn.Parameter]) -> None:
        if self.parameters.clip_grad_norm is not None and self.parameters.optimizer == "fused":
            self._clip.clip_norm(trained)
        else:
            super().clip(model, trained)

    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        self.device.flush()
        # fast DDP packs gradients by a recorded graph. It would miss newly allocated gradients, and the ranks would silently drift apart
        optimizer.zero_grad(set_to_none=not (self._fast or self.parameters.hpu_graphs))
