"""CLIP training, as in "Stable and low-precision training for large-scale vision-language models".

The loss is CLIP's over the local batch. What that document varies, the precision of all linear layers of both towers' blocks (q, k, v, out,
both of the MLP), is `precision`, as for every workload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from experiments.components.data.pairs import KeptPairParameters, Pairs, normalised
from experiments.components.data.text import check_vocabulary, token_id
from experiments.components.workload import Batch, Context, DataError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.components.data.images import PairDataset

BRANCHES = (("self_attn", "out_proj"), ("mlp", "fc2"))  # the last layer of each residual branch
ENDS = ("</s>", "<|endoftext|>", "[SEP]")  # tokens that may end a caption, in order of preference
SIGNAL_DIGITS = 12  # of the largest factor of the gradient: its square must fit into fp32
SHOWN_BLOCKS = 8  # feature magnitudes are told of so many blocks, from the first to the last

# vision: width, layers, heads, patch, image (pixels); text: width, layers, heads; projection; vocabulary, tokens. A MLP is 4 x as wide
SIZES: dict[str, tuple[tuple[int, int, int, int, int], tuple[int, int, int], int, int, int]] = {
    "b32": ((768, 12, 12, 32, 224), (512, 12, 8), 512, 49408, 77),
    "b16": ((768, 12, 12, 16, 224), (512, 12, 8), 512, 49408, 77),
    "l14": ((1024, 24, 16, 14, 224), (768, 12, 12), 768, 49408, 77),
    "h14": ((1280, 32, 16, 14, 224), (1024, 24, 16), 1024, 49408, 77),
    "tiny": ((64, 3, 2, 16, 64), (64, 2, 2), 32, 4096, 24),
    "pico": ((32, 2, 2, 8, 32), (32, 2, 2), 32, 1024, 24),
}


class Parameters(KeptPairParameters):
    """CLIP's own settings."""

    same_work = ("model",)

    model: Literal["b32", "b16", "l14", "h14", "tiny", "pico"] = Field(
        "tiny", description="ViT-B/32 to ViT-H/14 as published; tiny and pico for CPUs, pico for thousands of steps"
    )
    zero_layer_scale: bool = Field(False, description="each residual branch times a learnt vector that starts at 0")
    attention: Literal["eager", "sdpa"] = Field("sdpa", description="attention of both towers")
    signal_every: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="provokes spikes: after each so many steps the loss's gradient is multiplied once more by signal_factor",
    )
    signal_factor: float = Field(10.0, gt=0, le=1e4, description="see signal_every; the loss that is recorded is the plain one")
    learning_rate: float = Field(5e-4, gt=0, le=10)
    weight_decay: float = Field(0.2, ge=0, le=1)

    @model_validator(mode="after")
    def _finite(self) -> Parameters:
        if self.signal_every is None and self.signal_factor != (default := type(self).model_fields["signal_factor"].default):
            raise ValueError(f"signal_factor has no effect without signal_every; leave it at {default:g}, or set signal_every")
        if self.signal_every is not None and (self.measure_s is not None or self.warmup_s is not None):
            raise ValueError("signal_every: not with measure_s or warmup_s, since the gradient grows for as long as the trial lasts")
        times = (self.warmup_steps + self.steps) // (self.signal_every or self.warmup_steps + self.steps + 1)
        if abs(times * math.log10(self.signal_factor)) > SIGNAL_DIGITS:
            raise ValueError(
                f"signal_every: {times} times a factor of {self.signal_factor:g} is beyond 1e{SIGNAL_DIGITS}; choose more steps"
            )
        return self


def config(size: str) -> Any:
    """The CLIPConfig of a size."""
    from transformers import CLIPConfig

    (width, layers, heads, patch, image), (text, text_layers, text_heads), projection, vocabulary, tokens = SIZES[size]
    return CLIPConfig(
        vision_config={
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 4 * width,
            "patch_size": patch,
            "image_size": image,
            "projection_dim": projection,
        },
        text_config={
            "hidden_size": text,
            "num_hidden_layers": text_layers,
            "num_attention_heads": text_heads,
            "intermediate_size": 4 * text,
            "vocab_size": vocabulary,
            "max_position_embeddings": tokens,
            "projection_dim": projection,
            "eos_token_id": 2,  # transformers then takes a text's state at its token of the highest number; see Clip.prepare
            "bos_token_id": None,
        },
        projection_dim=projection,
    )


def build(context: Context) -> Clip:
    """The workload on this rank. Raises DataError."""
    return Clip(context)


class Clip:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        (*_, self.image_size), _, _, self.vocabulary, tokens = SIZES[self.parameters.model]
        self.pairs = Pairs(context, tokens)
        self.end = self._end()

    def model(self) -> nn.Module:
        from transformers import CLIPModel

        check_vocabulary(self.pairs.tokenizer(), self.vocabulary)
        model: Any = CLIPModel._from_config(config(self.parameters.model), attn_implementation=self.parameters.attention)
        if self.parameters.zero_layer_scale:
            from experiments.components.layers.layer_scale import zero_scaled

            for layer in self.layers(model):
                for part, name in BRANCHES:
                    parent = getattr(layer, part)
                    setattr(parent, name, zero_scaled(getattr(parent, name)))
        return model.train()  # type: ignore[no-any-return]

    def _end(self) -> int:
        """The token that ends a caption. Raises DataError: a causal text tower needs a place that has read all of it."""
        end = token_id(self.pairs.tokenizer(), ENDS)
        if end is None:
            raise DataError(f"the tokenizer has none of {', '.join(ENDS)}: a caption needs an end")
        return end

    def layers(self, model: Any) -> list[nn.Module]:
        return [*model.text_model.encoder.layers, *model.vision_model.encoder.layers]

    def batches(self) -> Iterator[Batch]:
        every, factor = self.parameters.signal_every, self.parameters.signal_factor
        batches = self.pairs.batches(self._items(self.pairs.train, augment=self.parameters.augment), self.pairs.train_indices())
        for number, batch in enumerate(batches):
            yield batch if every is None else {**batch, "signal": factor ** (number // every)}

    def prepare(self, batch: Batch) -> Batch:
        # the end gets the highest number, as in CLIP's own vocabulary: that is where transformers looks
        tokens = batch["input_ids"].masked_fill(batch["input_ids"] == self.end, self.vocabulary - 1)
        return {**batch, "input_ids": tokens, "pixel_values": normalised(batch.pop("pixels"))}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        signal = batch.pop("signal", 1.0)
        loss: torch.Tensor = model(**batch, return_loss=True).loss
        # the value stays as it is, the gradient is another: what an optimiser sees when the learning signal changes its scale
        return loss if signal == 1 else loss.detach() + signal * (loss - loss.detach())

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: Any, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """Loss on held-out pairs, and `magnitude_N`: the mean |output| of the vision tower's block N (the feature-magnitude figure)."""
        blocks = model.vision_model.encoder.layers
        block_numbers = sorted({round(at * (len(blocks) - 1) / (SHOWN_BLOCKS - 1)) for at in range(SHOWN_BLOCKS)})
        magnitudes: dict[int, list[float]] = {at: [] for at in block_numbers}

        def listen(at: int) -> Callable[..., None]:
            def hook(module: object, inputs: object, output: Any) -> None:
                magnitudes[at].append(float((output[0] if isinstance(output, tuple) else output).float().abs().mean()))

            return hook

        hooks = [blocks[at].register_forward_hook(listen(at)) for at in block_numbers]
        items = self._items(self.pairs.held_out, augment=False)
        try:
            losses = [float(self.loss(model, place(batch))) for batch in self.pairs.held_out_batches(items)]
        finally:
            for hook in hooks:
                hook.remove()
        return {
            "loss": sum(losses) / len(losses),
            "chance_loss": math.log(self.parameters.evaluation_batch_size),
            **{f"magnitude_{at + 1}": sum(values) / len(values) for at, values in magnitudes.items()},
        }

    def flops_per_sample(self) -> float | None:
        return flops(self.parameters.model)

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the blocks' linear layers: the rest is attention, patches and projections."""
        return linear_flops(self.parameters.model)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums."""
        return attention_flops(self.parameters.model)

    def _items(self, rows: Any, *, augment: bool) -> PairDataset:
        keep = self.parameters.keep_decoded
        return self.pairs.dataset(rows, self.pairs.tokenizer(), self.image_size, augment=augment, keep=keep)


def flops(size: str) -> float:
    """Training FLOPs per pair: 3 x the forward pass's matrix products, the contrastive one left out (it depends on the batch)."""
    (width, layers, _, patch, image), (text, text_layers, _), projection, _, tokens = SIZES[size]
    patches = (image // patch) ** 2

    def tower(width: int, layers: int, tokens: int) -> float:
        return 2.0 * layers * tokens * (12 * width * width + 2 * tokens * width)

    ends = 2.0 * (patches * 3 * patch * patch * width + projection * (width + text))
    return 3 * (tower(width, layers, patches + 1) + tower(text, text_layers, tokens) + ends)


def linear_flops(size: str) -> float:
    """Of `flops`, those of the blocks' linear layers: q, k, v and out (4 width^2 weights), both layers of the MLP (8 width^2)."""
    (width, layers, _, patch, image), (text, text_layers, _), _, _, tokens = SIZES[size]
    patches = (image // patch) ** 2
    return 3 * 2.0 * 12 * (layers * (patches + 1) * width * width + text_layers * tokens * text * text)


def attention_flops(size: str) -> float:
    """Of `flops`, those of the scores and their sums."""
    (width, layers, _, patch, image), (text, text_layers, _), _, _, tokens = SIZES[size]
    seen = (image // patch) ** 2 + 1
    return 3 * 2.0 * 2 * (layers * seen * seen * width + text_layers * tokens * tokens * text)
