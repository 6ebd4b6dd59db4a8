"""The FLAVA model: its configuration, the codes of its image codebook, and its FLOPs. Torch and transformers; used on workers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from experiments.components.flop_count import attention_masks_left_out, count_once, counting, shapes_alone
from experiments.workloads.flava.parameters import MASKED_PATCHES, NEGATIVES, SIZES

if TYPE_CHECKING:
    import torch

_LAYERED = ("image", "plain", "masked", "text")  # passes through the layers
LINEAR = "linear "  # before the name of a pass: of its FLOPs those of linear layers


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


@contextmanager
def codes_seen(model: Any) -> Iterator[list[torch.Tensor]]:
    """Within this, a list that collects the codes of each call of the image codebook: int64 (batch, patches)."""
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


def flops(size: str, text_length: int, long_text_length: int, *, together: bool = False) -> dict[str, float]:
    """Training FLOPs of a sample by kind of batch: 3 x the forward pass of what is trained, 1 x that of the rest.

    The rest is the codebook and, for an image alone, its unmasked pass. Where passes are `together` that is left out, and so is what the
    multimodal encoder does not see: the projection of images alone, texts alone and a pair's unmasked pass. Recomputation by activation
    checkpointing is not counted. torch's FlopCounterMode counts matrix products on tensors without values. Those of the heads are computed
    by hand, since they see the masked positions only.
    """
    passes = {name: once + layers for name, (once, layers) in _passes(size, text_length, long_text_length).items()}
    settings = config(size)
    patches = (settings.image_config.image_size // settings.image_config.patch_size) ** 2
    masked_patches = round(MASKED_PATCHES * patches)

    def head(vocabulary: int, positions: float) -> float:
        return float(2 * settings.hidden_size * (settings.hidden_size + vocabulary) * positions)

    def left_out(tokens: int) -> float:
        return float(2 * settings.hidden_size**2 * tokens) if together else 0.0

    codes, words = settings.image_config.vocab_size, settings.text_config.vocab_size
    image = passes["image"] + head(codes, masked_patches) - left_out(patches + 1)
    pair = passes["plain"] + passes["masked"] - left_out(patches + 1 + text_length)
    pair_heads = head(codes, (1 - NEGATIVES) * masked_patches) + head(words, (1 - NEGATIVES) * 0.15 * text_length)
    return {
        "image": 3 * image + (0 if together else 1) * passes["image"] + passes["codebook"],
        "pair": 3 * (pair + pair_heads) + passes["codebook"],
        "text": 3 * (passes["text"] + head(words, 0.15 * long_text_length) - left_out(long_text_length)),
    }


def linear_flops(size: str, text_length: int, long_text_length: int, *, together: bool = False) -> dict[str, float]:
    """Of `flops`, those of the layers' linear layers, by kind of batch."""
    passes = _passes(size, text_length, long_text_length)
    return _of_layers({name: passes[LINEAR + name][1] for name in _LAYERED}, together=together)


def attention_flops(size: str, text_length: int, long_text_length: int, *, together: bool = False) -> dict[str, float]:
    """Of `flops`, those of attention's scores and their sums over values, by kind of batch: what of the layers is not linear."""
    passes = _passes(size, text_length, long_text_length)
    return _of_layers({name: passes[name][1] - passes[LINEAR + name][1] for name in _LAYERED}, together=together)


def _of_layers(forward: Mapping[str, float], *, together: bool) -> dict[str, float]:
    """Training FLOPs in layers by kind of batch, from those of each forward pass."""
    return {
        "image": (3 if together else 4) * forward["image"],
        "pair": 3 * (forward["plain"] + forward["masked"]),
        "text": 3 * forward["text"],
    }


def recomputed_flops(size: str, text_length: int, long_text_length: int) -> dict[str, float]:
    """FLOPs that activation checkpointing adds to a sample, by kind of batch: the forward pass of the layers that are trained."""
    layers = {name: in_layers for name, (_, in_layers) in _passes(size, text_length, long_text_length).items()}
    return {"image": layers["image"], "pair": layers["plain"] + layers["masked"], "text": layers["text"]}


@cache
def _passes(size: str, text_length: int, long_text_length: int) -> dict[str, tuple[float, float]]:
    """FLOPs of each forward pass per sample, and of its linear layers: (outside the layers, in all layers).

    All layers cost the same, so models of one and two layers give the cost of any depth. To build the largest model takes seconds, even
    on tensors without values.
    """
    _, _, _, layers, multimodal, *_ = SIZES[size]
    one, wider, deeper = (_forward_flops(size, shape, text_length, long_text_length) for shape in ((1, 1), (2, 1), (1, 2)))
    costs = {}
    for name, value in one.items():
        tower, fusion = wider[name] - value, deeper[name] - value
        costs[name] = (value - tower - fusion, layers * tower + multimodal * fusion)
    return costs


def _forward_flops(size: str, shape: tuple[int, int], text_length: int, long_text_length: int) -> dict[str, float]:
    """FLOPs of each forward pass per sample, with as many layers as `shape` says: of each tower, and of the multimodal encoder."""
    settings = config(size)
    settings.image_config.num_hidden_layers, settings.multimodal_config.num_hidden_layers = shape
    settings.text_config.num_hidden_layers = shape[0]
    what = f"flava, text {text_length} and {long_text_length}: {settings.to_json_string()}"
    return count_once(what, lambda: _counted_flops(settings, text_length, long_text_length))


def _counted_flops(settings: Any, text_length: int, long_text_length: int) -> dict[str, float]:
    import torch
    from transformers import FlavaForPreTraining
    from transformers.models.flava import modeling_flava

    side = settings.image_config.image_size
    patches = (side // settings.image_config.patch_size) ** 2

    def count(call: Callable[[], object]) -> tuple[float, float]:
        """All FLOPs per sample, and those of single matrix products, in the layers the linear layers': attention's are batched."""
        with counting() as counter:
            call()
        of = counter.get_flop_counts()["Global"]
        return float(counter.get_total_flops()) / 2, sum(of.get(one, 0) for one in (torch.ops.aten.mm, torch.ops.aten.addmm)) / 2

    with shapes_alone(), attention_masks_left_out(modeling_flava):
        model = FlavaForPreTraining._from_config(settings, attn_implementation="eager").train()
        pixels, mask = torch.zeros(2, 3, side, side), torch.zeros(2, patches, dtype=torch.bool)
        short, long = torch.full((2, text_length), 5), torch.full((2, long_text_length), 5)
        counted = {
            "codebook": count(lambda: model.image_codebook.get_codebook_indices(torch.zeros(2, 3, side // 2, side // 2))),
            "image": count(lambda: model.flava(pixel_values=pixels, bool_masked_pos=mask)),
            "text": count(lambda: model.flava(input_ids=long)),
            "plain": count(lambda: model.flava(input_ids=short, pixel_values=pixels, skip_multimodal_encoder=True)),
            "masked": count(lambda: model.flava(input_ids=short, pixel_values=pixels, bool_masked_pos=mask)),
        }
    return {prefix + name: both[at] for at, prefix in enumerate(("", LINEAR)) for name, both in counted.items()}
