"""FLAVA pre-training at six sizes, as in "Scaling Multimodal Foundation Models": which strategy fits, and how fast is it?

Each step draws one of three kinds of batch, the same on all ranks: images alone, text alone, or pairs. The losses are those of
FlavaForPreTraining with weight 1 each: masked image, masked language, image-text matching, global contrastive, both multimodal ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from experiments.components.data.masking import mask_blocks, mask_tokens
from experiments.components.data.pairs import PairParameters, Pairs, normalised
from experiments.components.data.text import MASKS, token_id
from experiments.components.workload import Batch, Context, DataError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.components.data.parquet import BatchIndices

KINDS = ("image", "pair", "text")
MASKED_PATCHES = 75 / 196  # of an image's patches
NEGATIVES = 0.1  # of the pairs get another pair's text
CODEBOOK_EDGE = 0.1  # the codebook's inputs are 0.8 x + 0.1 (Ramesh et al. 2021)
CAVEAT = (  # of every result; reports say it first
    "The image codebook has random weights and gives a handful of distinct codes (evaluation metric image_codes, of 8192): "
    "throughput and memory are those of the real model, the two masked-image losses mean nothing."
)
FSDP1_ZEROS = (
    "FSDP1 gives a parameter that a step does not use a gradient of zeros, and AdamW then decays it and moves it on; "
    "DDP and FSDP2 leave it alone. A FLAVA step uses some towers only, so its losses are not those of the other strategies"
)

# hidden, MLP, heads, layers of each tower, multimodal layers, image (pixels), codebook width, codes, vocabulary; 350m to 10b as published.
# 16b and 28b are ours, for devices with more memory than the document's: 3.2 x the 4.8b, and 3 x what replicas of 16 bytes a parameter
# leave room for in 141 GB
SIZES: dict[str, tuple[int, ...]] = {
    "350m": (768, 3072, 12, 12, 6, 224, 256, 8192, 30522),
    "900m": (1024, 4096, 16, 24, 12, 224, 256, 8192, 30522),
    "1.8b": (1280, 5120, 16, 32, 16, 224, 256, 8192, 30522),
    "2.7b": (1408, 6144, 16, 40, 20, 224, 256, 8192, 30522),
    "4.8b": (1664, 8192, 16, 48, 24, 224, 256, 8192, 30522),
    "10b": (2048, 10240, 16, 64, 40, 224, 256, 8192, 30522),
    "16b": (2816, 11264, 22, 60, 40, 224, 256, 8192, 30522),
    "28b": (3584, 14336, 28, 68, 44, 224, 256, 8192, 30522),
    "mini": (128, 512, 4, 4, 2, 64, 16, 64, 4096),
    "tiny": (64, 256, 2, 2, 1, 64, 8, 64, 4096),
}


class Parameters(PairParameters):
    """FLAVA's own settings."""

    model: Literal["350m", "900m", "1.8b", "2.7b", "4.8b", "10b", "16b", "28b", "mini", "tiny"] = Field(
        "tiny", description="to 10b as published; 16b and 28b are larger ones of ours, mini and tiny are for CPUs"
    )
    strategy: str = Field("none", max_length=40, description="names a parallel strategy; what it sets stands in the suite's conditions")
    text_length: int = Field(77, ge=4, le=512, description="tokens of a pair's caption, padded or cut")
    long_text_length: int = Field(512, ge=8, le=512, description="tokens of a text alone: captions, one after the other")
    kinds: Literal["drawn", "balanced"] = Field(
        "drawn", description="each step's kind of batch: drawn as in the document, or every three steps one of each, for short windows"
    )
    learning_rate: float = Field(1e-3, gt=0, le=10)
    weight_decay: float = Field(0.1, ge=0, le=1)
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field("cosine", description="fall to 0 over all steps, or none")
    learning_rate_warmup: int = Field(2000, ge=0, le=1_000_000, description="steps over which the rate rises from 0")

    @model_validator(mode="after")
    def _eager(self) -> Parameters:
        if self.compile == "model":
            raise ValueError("compile model: the loss picks masked positions, whose number differs by batch; use layer")
        return self


def config(size: str) -> Any:
    """The FlavaConfig of a size."""
    from transformers import FlavaConfig

    hidden, mlp, heads, layers, multimodal, image, codebook, codes, vocabulary = SIZES[size]
    tower = {"hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads, "num_hidden_layers": layers}
    return FlavaConfig(
        image_config={**tower, "image_size": image, "vocab_size": codes},
        text_config={**tower, "vocab_size": vocabulary},
        multimodal_config={**tower, "num_hidden_layers": multimodal},
        image_codebook_config={"hidden_size": codebook, "vocab_size": codes},
        hidden_size=hidden,
        projection_dim=min(768, hidden),
        initializer_range=0.02,
    )


def build(context: Context) -> Flava:
    """The workload on this rank. Raises DataError."""
    return Flava(context)


class Flava:
    """See Workload."""

    find_unused_parameters = True  # each kind of batch leaves parameters without a gradient
    steps_alike = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        self.config = config(self.parameters.model)
        self.image_size: int = self.config.image_config.image_size
        self.pairs = Pairs(context, self.image_size, self.parameters.text_length)

    def model(self) -> nn.Module:
        from transformers import FlavaForPreTraining

        tokens = self.pairs.tokenizer().get_vocab_size()
        if tokens > self.config.text_config.vocab_size:
            raise DataError(f"the tokenizer has {tokens} tokens, the model {self.config.text_config.vocab_size}: set tokenizer to match")
        if self.context.rank == 0:
            self.context.note(CAVEAT.rstrip("."))
            if self.parameters.parallel == "fsdp1" and self.context.world_size > 1:
                self.context.note(FSDP1_ZEROS)
        model = FlavaForPreTraining._from_config(self.config, attn_implementation="eager")
        return model.train()  # type: ignore[no-any-return]

    def layers(self, model: Any) -> list[nn.Module]:
        flava = model.flava
        return [layer for tower in (flava.image_model, flava.text_model, flava.multimodal_model) for layer in tower.encoder.layer]

    def shard_units(self, model: Any) -> list[nn.Module]:
        """Layers, then the towers. The frozen codebook stays with the root: alone it would be called by a method, past its hooks."""
        return [*self.layers(model), model.flava.image_model, model.flava.text_model, model.flava.multimodal_model]

    def batches(self) -> Iterator[Batch]:
        order = zip(self.pairs.drafts(), kinds(self.parameters.seed, balanced=self.parameters.kinds == "balanced"), strict=False)
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
        return model(**{name: value for name, value in batch.items() if name not in ("kind", "count", "corrupt")}, return_loss=True)

    def samples(self, batch: Batch) -> int:
        return int(batch["count"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """`loss` is that of masked language on text alone; `image_codes` counts the distinct codes that the codebook gave."""
        import torch
        from transformers import FlavaForPreTraining

        inner = next(module for module in model.modules() if isinstance(module, FlavaForPreTraining))
        weight, inner.global_contrastive_weight = inner.global_contrastive_weight, 0  # it gathers over ranks, and one may be here alone
        items = Items(self.pairs, self.pairs.held_out, self.config, self.parameters, augment=False)
        text, matching, codes = [], [], set()
        try:
            for draft in self.pairs.held_out_drafts():
                text.append(float(self._forward(model, place(items[draft, "text"])).loss_info.mlm))
                pair = place(items[draft, "pair"])
                with _codes_seen(inner) as seen:
                    matching.append(float(self._forward(model, pair).loss_info.itm))
                codes |= set(torch.cat([found.flatten() for found in seen]).tolist())
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
        counted = sum(flops(*shape).values()) / len(KINDS)
        if self.parameters.activation_checkpointing:
            more = sum(recomputed_flops(*shape).values()) / len(KINDS)
            self.context.note(f"activation checkpointing computes {more / counted:.1%} on top of the FLOPs that are counted")
        return counted


def kinds(seed: int, *, balanced: bool) -> Iterator[str]:
    """The kind of each step, for ever; the same on all ranks.

    The first three are one of each: they are in the warm-up, and a probe of what fits has then seen the kind that needs most.
    """
    draw = random.Random(f"kinds/{seed}")  # not the rank's: all ranks do the same kind of step
    yield from draw.sample(KINDS, len(KINDS))
    while True:
        yield from draw.sample(KINDS, len(KINDS)) if balanced else [draw.choice(KINDS)]


class Items:
    """(Draft, kind) -> the arguments of FlavaForPreTraining, pixels still uint8 (batch, size, size, 3), on the host."""

    def __init__(self, pairs: Pairs, rows: Any, config: Any, parameters: Parameters, *, augment: bool) -> None:
        self.pairs, self.rows, self.parameters = pairs.dataset(rows, augment=augment), rows, parameters
        self.vocabulary: int = config.text_config.vocab_size
        self.side: int = config.image_config.image_size // config.image_config.patch_size
        tokenizer = pairs.tokenizer()
        mask = token_id(tokenizer, MASKS)
        self.mask = self.vocabulary - 1 if mask is None else mask
        self.long = pairs.tokenizer()
        self.long.no_padding()

    def __getitem__(self, wanted: tuple[BatchIndices, str]) -> Batch:
        import torch

        draft, kind = wanted
        draw = torch.Generator().manual_seed(draft.seed & 0x7FFFFFFF)
        if kind == "text":
            tokens = self._long_texts(draft)
            masked, labels = mask_tokens(
                tokens, torch.ones_like(tokens, dtype=torch.bool), mask=self.mask, vocabulary=self.vocabulary, draw=draw
            )
            # without `input_ids` nothing is computed that no loss is taken of
            return {"kind": kind, "count": len(tokens), "input_ids_masked": masked, "mlm_labels": labels}
        batch = self.pairs[draft]
        count = len(batch["input_ids"])
        blocks = random.Random(draft.seed)
        patches = round(MASKED_PATCHES * self.side**2)
        images: Batch = {
            "kind": kind,
            "count": count,
            "pixels": batch["pixels"],
            "bool_masked_pos": torch.tensor([mask_blocks(self.side, patches, blocks) for _ in range(count)]),
            "corrupt": batch["corrupt"],
        }
        if kind == "image":
            return images
        matches = torch.rand(count, generator=draw) >= NEGATIVES
        if count > 1:
            text = torch.where(matches, torch.arange(count), (torch.arange(count) + 1) % count)
        else:
            matches, text = torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.long)
        tokens, real = batch["input_ids"][text], batch["attention_mask"][text]
        masked, labels = mask_tokens(tokens, real.bool(), mask=self.mask, vocabulary=self.vocabulary, draw=draw)
        words = {
            "input_ids": tokens,
            "input_ids_masked": masked,
            "attention_mask": real,
            "mlm_labels": labels,
            "itm_labels": matches.long(),
        }
        return {**images, **words}

    def _long_texts(self, draft: BatchIndices) -> torch.Tensor:
        """(batch, long_text_length): each row's caption, then those of the rows after it, cut."""
        import torch

        length, texts = self.parameters.long_text_length, []
        for row in draft.rows:
            tokens: list[int] = []
            at = row
            while len(tokens) < length:
                found = self.long.encode(self.rows.read(at % len(self.rows))[1] or "").ids
                tokens += found
                at += 1
                if at - row > 4 * length:
                    raise DataError(f"the captions after {self.rows.name(row)} are empty: nothing to read")
            texts.append(tokens[:length])
        return torch.tensor(texts)


@contextmanager
def _codes_seen(model: Any) -> Iterator[list[torch.Tensor]]:
    """What the codebook gives meanwhile."""
    seen: list[torch.Tensor] = []
    ask = model.image_codebook.get_codebook_indices

    def listen(pixels: torch.Tensor) -> torch.Tensor:
        codes: torch.Tensor = ask(pixels)
        seen.append(codes.detach().clone())  # the loss marks patches in it
        return codes

    model.image_codebook.get_codebook_indices = listen
    try:
        yield seen
    finally:
        del model.image_codebook.get_codebook_indices


def flops(size: str, text_length: int, long_text_length: int) -> dict[str, float]:
    """Training FLOPs of an item by kind: 3 x what is learnt of, 1 x what is only computed.

    Only computed are the codebook and, of an image alone, its unmasked pass. Recomputation by activation checkpointing is not counted.

    Matrix products, counted by torch's FlopCounterMode on fake tensors; the heads' by hand, since they see the masked positions only.
    """
    passes = {name: once + layers for name, (once, layers) in _passes(size, text_length, long_text_length).items()}
    settings = config(size)
    patches = (settings.image_config.image_size // settings.image_config.patch_size) ** 2
    told = round(MASKED_PATCHES * patches)

    def head(vocabulary: int, positions: float) -> float:
        return float(2 * settings.hidden_size * (settings.hidden_size + vocabulary) * positions)

    codes, words = settings.image_config.vocab_size, settings.text_config.vocab_size
    pair_heads = head(codes, (1 - NEGATIVES) * told) + head(words, (1 - NEGATIVES) * 0.15 * text_length)
    return {
        "image": 3 * passes["image"] + passes["image"] + passes["codebook"] + 3 * head(codes, told),
        "pair": 3 * (passes["plain"] + passes["masked"] + pair_heads) + passes["codebook"],
        "text": 3 * (passes["text"] + head(words, 0.15 * long_text_length)),
    }


def recomputed_flops(size: str, text_length: int, long_text_length: int) -> dict[str, float]:
    """What activation checkpointing computes again, by kind: the forward pass of the layers that something is learnt of."""
    layers = {name: found for name, (_, found) in _passes(size, text_length, long_text_length).items()}
    return {"image": layers["image"], "pair": layers["plain"] + layers["masked"], "text": layers["text"]}


@cache
def _passes(size: str, text_length: int, long_text_length: int) -> dict[str, tuple[float, float]]:
    """Matrix products of each forward pass per item: outside the layers, and in all of them.

    Layers are alike, so two depths tell what any depth costs; building all of the largest model takes seconds, even on fake tensors.
    """
    _, _, _, layers, multimodal, *_ = SIZES[size]
    one, wider, deeper = (_forward_flops(size, shape, text_length, long_text_length) for shape in ((1, 1), (2, 1), (1, 2)))
    found = {}
    for name, value in one.items():
        tower, fusion = wider[name] - value, deeper[name] - value
        found[name] = (value - tower - fusion, layers * tower + multimodal * fusion)
    return found


def _forward_flops(size: str, shape: tuple[int, int], text_length: int, long_text_length: int) -> dict[str, float]:
    """Matrix products of each forward pass per item, of the size with `shape`: layers of the towers, multimodal layers."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import FlavaForPreTraining

    settings = config(size)
    settings.image_config.num_hidden_layers, settings.multimodal_config.num_hidden_layers = shape
    settings.text_config.num_hidden_layers = shape[0]
    side = settings.image_config.image_size
    patches = (side // settings.image_config.patch_size) ** 2

    def count(call: Callable[[], object]) -> float:
        with FlopCounterMode(display=False) as counter:
            call()
        return float(counter.get_total_flops()) / 2

    with FakeTensorMode(), torch.no_grad(), _without_masks():
        model = FlavaForPreTraining._from_config(settings, attn_implementation="eager").train()
        pixels, mask = torch.zeros(2, 3, side, side), torch.zeros(2, patches, dtype=torch.bool)
        short, long = torch.full((2, text_length), 5), torch.full((2, long_text_length), 5)
        return {
            "codebook": count(lambda: model.image_codebook.get_codebook_indices(torch.zeros(2, 3, side // 2, side // 2))),
            "image": count(lambda: model.flava(pixel_values=pixels, bool_masked_pos=mask)),
            "text": count(lambda: model.flava(input_ids=long)),
            "plain": count(lambda: model.flava(input_ids=short, pixel_values=pixels, skip_multimodal_encoder=True)),
            "masked": count(lambda: model.flava(input_ids=short, pixel_values=pixels, bool_masked_pos=mask)),
        }


@contextmanager
def _without_masks() -> Iterator[None]:
    """Masks cost no matrix product, and transformers looks at their values, which fake tensors do not have."""
    from transformers.models.flava import modeling_flava as module

    made_by = getattr(module, "create_bidirectional_mask", None)
    if made_by is None:
        yield
        return
    module.create_bidirectional_mask = lambda *_, **__: None
    try:
        yield
    finally:
        module.create_bidirectional_mask = made_by
