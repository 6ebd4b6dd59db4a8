"""FLAVA pre-training at six sizes, as in "Scaling Multimodal Foundation Models": which strategy fits, and how fast is it?

Each step has one of three kinds of batch, chosen at random and the same on all ranks: images alone, text alone, or pairs. The losses are
those of FlavaForPreTraining with weight 1 each: masked image, masked language, image-text matching, global contrastive, and both multimodal
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from experiments.components.data.pairs import Pairs, normalised
from experiments.components.data.text import check_vocabulary
from experiments.components.workload import Batch, Context
from experiments.workloads.flava.batches import KINDS, Items, kinds
from experiments.workloads.flava.model import attention_flops, codes_seen, config, flops, linear_flops, recomputed_flops
from experiments.workloads.flava.parameters import CAVEAT, Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn

CODEBOOK_EDGE = 0.1  # the codebook's inputs are 0.8 x + 0.1 (Ramesh et al. 2021)
FSDP1_ZEROS = (
    "FSDP1 gives a parameter that a step does not use a gradient of zeros, and AdamW then decays it and moves it on; "
    "DDP and FSDP2 leave it alone. A FLAVA step uses some towers only, so its losses are not those of the other strategies"
)


def build(context: Context) -> Flava:
    """The workload on this rank. Raises DataError."""
    return Flava(context)


class Flava:
    """See Workload."""

    find_unused_parameters = True  # each kind of batch leaves parameters without a gradient
    steps_alike = False
    few_shapes = True  # of tokens: a kind of batch gives each tower one

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        self.steps_per_round = len(KINDS) if self.parameters.kinds == "balanced" else 1
        self.config = config(self.parameters.model)
        self.image_size: int = self.config.image_config.image_size
        self.pairs = Pairs(context, self.parameters.text_length)

    def model(self) -> nn.Module:
        from transformers import FlavaForPreTraining

        from experiments.components.layers.flava_attention import fuse_attention
        from experiments.components.layers.flava_together import pass_together

        check_vocabulary(self.pairs.tokenizer(), self.config.text_config.vocab_size)
        if self.context.rank == 0:
            self.context.note(CAVEAT.rstrip("."))
            if self.parameters.parallel == "fsdp1" and self.context.world_size > 1:
                self.context.note(FSDP1_ZEROS)
        model = FlavaForPreTraining._from_config(self.config, attn_implementation="eager")
        if self.parameters.attention == "sdpa":
            fuse_attention(model)
        if self.parameters.passes == "together":
            pass_together(model)
        return model.train()  # type: ignore[no-any-return]

    def layers(self, model: Any) -> list[nn.Module]:
        flava = model.flava
        return [layer for tower in (flava.image_model, flava.text_model, flava.multimodal_model) for layer in tower.encoder.layer]

    def shard_units(self, model: Any) -> list[nn.Module]:
        """Layers, then the towers. The frozen codebook stays with the root: alone it would be called by a method, past its hooks."""
        return [*self.layers(model), *self.compile_units(model)]

    def compile_units(self, model: Any) -> list[nn.Module]:
        """The towers: the losses around them pick masked positions, whose number differs by batch."""
        return [model.flava.image_model, model.flava.text_model, model.flava.multimodal_model]

    def batches(self) -> Iterator[Batch]:
        order = zip(self.pairs.train_indices(), kinds(self.parameters.seed, balanced=self.parameters.kinds == "balanced"), strict=False)
        return self.pairs.batches(Items(self.pairs, self.pairs.train, self.config, self.parameters, augment=self.parameters.augment), order)

    def prepare(self, batch: Batch) -> Batch:
        """Normalise the pixels, and make the codebook's from them: half as wide, 0.8 x + 0.1."""
        if "pixels" not in batch:
            return batch
        from torch.nn import functional

        pixels = batch.pop("pixels")
        raw = pixels.permute(0, 3, 1, 2) / 255
        small = functional.interpolate(raw, size=self.image_size // 2, mode="area")
        codes = (1 - 2 * CODEBOOK_EDGE) * small + CODEBOOK_EDGE
        return {**batch, "pixel_values": normalised(pixels), "codebook_pixel_values": codes}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self._forward(model, batch).loss  # type: ignore[no-any-return]

    def _forward(self, model: nn.Module, batch: Batch) -> Any:
        return model(**{name: value for name, value in batch.items() if name not in ("kind", "count")})

    def samples(self, batch: Batch) -> int:
        return int(batch["count"])

    def step_kind(self, batch: Batch) -> str:
        return str(batch["kind"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """`loss` is that of masked language on text alone; `image_codes` counts the distinct codes that the codebook gave."""
        import torch
        from transformers import FlavaForPreTraining

        inner = next(module for module in model.modules() if isinstance(module, FlavaForPreTraining))
        weight, inner.global_contrastive_weight = inner.global_contrastive_weight, 0  # it gathers over ranks, and one may be here alone
        items = Items(self.pairs, self.pairs.held_out, self.config, self.parameters, augment=False)
        text, matching, codes = [], [], set()
        try:
            for indices in self.pairs.held_out_indices():
                text.append(float(self._forward(model, place(items[indices, "text"])).loss_info.mlm))
                pair = items[indices, "pair"]
                self.pairs.corrupt_held_out.add(pair.pop("corrupt"))
                pair = place(pair)
                with codes_seen(inner) as seen:
                    matching.append(float(self._forward(model, pair).loss_info.itm))
                codes |= set(torch.cat([part.flatten() for part in seen]).tolist())
        finally:
            inner.global_contrastive_weight = weight
        return {
            "loss": sum(text) / len(text),
            "chance_loss": math.log(self.config.text_config.vocab_size),
            "matching_loss": sum(matching) / len(matching),
            "image_codes": float(len(codes)),
        }

    def flops_per_sample(self) -> float | None:
        """Mean over the three kinds, of which a step draws each with the same chance."""
        shape = self.parameters.model, self.parameters.text_length, self.parameters.long_text_length
        counted = sum(flops(*shape, together=self._together).values()) / len(KINDS)
        if self.parameters.activation_checkpointing is True:
            more = sum(recomputed_flops(*shape).values()) / len(KINDS)
            self.context.note(f"activation checkpointing computes {more / counted:.1%} on top of the FLOPs that are counted")
        return counted

    @property
    def _together(self) -> bool:
        return self.parameters.passes == "together"

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the linear layers in `layers`."""
        shape = self.parameters.model, self.parameters.text_length, self.parameters.long_text_length
        return sum(linear_flops(*shape, together=self._together).values()) / len(KINDS)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums over values."""
        shape = self.parameters.model, self.parameters.text_length, self.parameters.long_text_length
        return sum(attention_flops(*shape, together=self._together).values()) / len(KINDS)
