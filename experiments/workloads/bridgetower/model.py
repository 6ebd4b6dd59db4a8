"""The BridgeTower model: sizes, weights, attention, loss and retrieval metrics. Torch and transformers; imported on workers only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.components.checkpoint import from_pretrained
from experiments.components.data.pairs import normalised
from experiments.components.flop_count import attention_masks_left_out, count_once, counting, in_attention, in_linears, shapes_alone
from experiments.components.workload import Batch, Unsupported

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.workloads.bridgetower.parameters import Parameters

# hidden, text and vision layers, heads, MLP, patch, image (pixels), cross layers, vocabulary, contrastive width, dropout.
# large and base: BridgeTower/bridgetower-{large,base}-itm-mlm-itc. mini and tiny are ours, for CPUs.
SIZES: dict[str, dict[str, Any]] = {
    name: dict(
        zip(("hidden", "layers", "heads", "mlp", "patch", "image", "cross", "vocabulary", "contrastive", "dropout"), values, strict=True)
    )
    for name, values in {
        "large": (1024, 24, 16, 4096, 14, 294, 6, 50265, 512, 0.1),
        "base": (768, 12, 12, 3072, 16, 288, 6, 50265, 512, 0.1),
        "mini": (192, 4, 3, 768, 16, 128, 2, 8192, 128, 0.0),
        "tiny": (64, 2, 2, 256, 16, 64, 2, 1024, 64, 0.0),
    }.items()
}
LOGIT_SCALE = 2.6592  # ln(1 / 0.07)


def config(parameters: Parameters) -> Any:
    """The BridgeTowerConfig of the named size. The two contrastive settings are missing from transformers' own default."""
    from transformers import BridgeTowerConfig

    size = SIZES[parameters.model]
    dropout = size["dropout"] if parameters.dropout is None else parameters.dropout
    return BridgeTowerConfig(
        hidden_size=size["hidden"],
        num_hidden_layers=size["cross"],
        num_attention_heads=size["heads"],
        contrastive_hidden_size=size["contrastive"],
        logit_scale_init_value=LOGIT_SCALE,
        share_link_tower_layers=False,
        link_tower_type="add",
        text_config={
            "hidden_size": size["hidden"],
            "num_hidden_layers": size["layers"],
            "num_attention_heads": size["heads"],
            "intermediate_size": size["mlp"],
            "vocab_size": size["vocabulary"],
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            # transformers draws all weights with this standard deviation; its default of 1 starts from saturated softmaxes
            "initializer_factor": 0.02 if parameters.model in ("mini", "tiny") else 1,
        },
        vision_config={
            "hidden_size": size["hidden"],
            "num_hidden_layers": size["layers"],
            "patch_size": size["patch"],
            "image_size": parameters.image_size or size["image"],
        },
    )


def attention_at_transformers(attention: str) -> str:
    """What transformers calls the attention of text and cross layers. The text's masks are told (`inputs`), and an image has no padding,
    so transformers is to make none.

    Raises Unsupported on a transformers whose BridgeTower has no attention interface: SDPA would silently be eager there.
    """
    from transformers.models.bridgetower import modeling_bridgetower as module

    if not hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        if attention == "eager":
            return attention
        import transformers

        raise Unsupported(f"attention {attention}: transformers {transformers.__version__} computes BridgeTower's attention eagerly only")
    from experiments.components.layers.masked_attention import masked_sdpa, registered

    if attention == "eager":
        return registered("sweepbench_bridgetower_eager", module.eager_attention_forward)
    return registered("sweepbench_bridgetower_fused", masked_sdpa)


def build(parameters: Parameters) -> nn.Module:
    """BridgeTowerForContrastiveLearning on the CPU in fp32; weights from the seed, a hub id at a pinned revision, or a folder."""
    import torch
    from transformers import BridgeTowerForContrastiveLearning

    from experiments.components.layers.attention import ApartAttention
    from experiments.workloads.bridgetower.bridges import join

    torch.manual_seed(parameters.seed)
    attention = attention_at_transformers(parameters.attention)
    if parameters.weights is None:
        model = BridgeTowerForContrastiveLearning._from_config(config(parameters), attn_implementation=attention)
    else:
        model = from_pretrained(BridgeTowerForContrastiveLearning, parameters.weights, parameters.revision, attention)
    for layer in (*model.bridgetower.cross_modal_text_layers, *model.bridgetower.cross_modal_image_layers):
        # transformers marks these self-attentions causal. Eager attention ignores the mark; SDPA, where it is given no mask, does not,
        # and would hide the later image tokens from the earlier ones: another, cheaper model
        layer.attention.self.is_causal = False
    if parameters.qkv == "views":
        for block in model.bridgetower.vision_model.visual.transformer.resblocks:
            block.attn = ApartAttention(block.attn)
    if parameters.freeze_text_pooler:  # its output is not used, so it would have no gradient, and DDP would wait for one
        model.bridgetower.text_model.pooler.requires_grad_(False)
    if parameters.bridges == "fused":
        join(model)
    model.train()
    return model  # type: ignore[no-any-return]


def layers(model: Any) -> list[nn.Module]:
    """The transformer blocks of both towers and of the cross-modal encoder."""
    tower = model.bridgetower
    return [
        *tower.text_model.encoder.layer,
        *tower.vision_model.visual.transformer.resblocks,
        *tower.cross_modal_text_layers,
        *tower.cross_modal_image_layers,
    ]


def inputs(batch: Batch, attention: str) -> dict[str, torch.Tensor]:
    """The model's arguments: pixels uint8 (batch, h, w, 3) become normalised fp32 (batch, 3, h, w), channels last in memory.

    Nothing here, nor in the forward pass with these arguments, makes the host wait for the device.
    """
    import torch

    from experiments.workloads.bridgetower.bridges import takes_prepared_masks

    mask = batch["attention_mask"]
    # where the device has decoded the images, it has normalised them too
    images = batch["pixel_values"] if "pixel_values" in batch else normalised(batch["pixels"])
    if takes_prepared_masks():
        # given a 2D mask, transformers asks the device whether it is all ones, and the host waits for the answer in every step
        mask = mask[:, None, None, :].bool()
        if attention == "eager":  # adds the mask to the scores
            mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, torch.finfo(torch.float32).min)
    return {"input_ids": batch["input_ids"], "attention_mask": mask, "pixel_values": images}


def evaluate(model: Any, batches: Iterator[Batch], batch_size: int, attention: str) -> dict[str, float]:
    """Contrastive loss over whole batches, and text-to-image recall over all samples at once (`retrieval_pool` of them).

    chance_loss = ln(batch): the loss of embeddings that know nothing. recall_at_k: see `recall`.
    """
    import torch

    losses: list[float] = []
    texts: list[torch.Tensor] = []
    images: list[torch.Tensor] = []
    with torch.no_grad():
        for batch in batches:
            output = model(**inputs(batch, attention), return_loss=True)
            losses.append(float(output.loss))
            texts.append(output.text_embeds.float())
            images.append(output.image_embeds.float())
    text, image = torch.cat(texts), torch.cat(images)
    scores = text @ image.T
    return {
        "loss": sum(losses) / len(losses),
        "chance_loss": math.log(batch_size),
        "recall_at_1": recall(scores, 1),
        "recall_at_5": recall(scores, 5),
        "retrieval_pool": float(len(text)),
    }


def recall(scores: torch.Tensor, among: int) -> float:
    """Share of captions whose own image is `among` so many nearest, 0 to 1. scores (captions, images): a caption's own on the diagonal.

    Among images as near as its own a caption's is by chance, so embeddings that are all alike have the recall of a guess, and not 1. A
    score that is not a number counts against the caption.
    """
    own = scores.diagonal()[:, None]
    farther, alike = (scores < own).sum(dim=1), (scores == own).sum(dim=1)
    nearer = scores.shape[1] - farther - alike
    return float(((among - nearer) / alike.clamp(min=1)).clamp(0, 1).mean())


def flops_per_sample(parameters: Parameters, text_length: int) -> float:
    """Training FLOPs per sample: 3 x the forward pass, counted by torch's FlopCounterMode on tensors without values (no memory, any size).

    "BridgeTower on Gaudi2" has 1431 and 409 GFLOP at text 128 (large, base): without the attention of the vision tower, with which they are
    1489 and 422. The MFUs beside its figures are by its own count.
    """
    return _flops(parameters, text_length)["all"]


def linear_flops_per_sample(parameters: Parameters, text_length: int) -> float:
    """Of `flops_per_sample`, those of the linear layers in `layers`."""
    return _flops(parameters, text_length)["linear"]


def attention_flops_per_sample(parameters: Parameters, text_length: int) -> float:
    """Of `flops_per_sample`, those of attention's scores and their sums."""
    return _flops(parameters, text_length)["attention"]


def _flops(parameters: Parameters, text_length: int) -> dict[str, float]:
    settings, joined = config(parameters), parameters.bridges == "fused"
    what = f"bridgetower, text {text_length}, bridges {parameters.bridges}: {settings.to_json_string()}"
    return count_once(what, lambda: _counted_flops(settings, text_length, joined=joined))


def _counted_flops(settings: Any, text_length: int, *, joined: bool) -> dict[str, float]:
    import torch
    from transformers import BridgeTowerForContrastiveLearning
    from transformers.models.bridgetower import modeling_bridgetower

    from experiments.workloads.bridgetower.bridges import join

    side, batch = settings.vision_config.image_size, 2
    with shapes_alone(), attention_masks_left_out(modeling_bridgetower):
        model = BridgeTowerForContrastiveLearning._from_config(settings, attn_implementation="eager")
        if joined:
            join(model)
        with counting() as counter:
            model(
                input_ids=torch.full((batch, text_length), 5),
                attention_mask=None if joined else torch.ones(batch, text_length, dtype=torch.long),
                pixel_values=torch.zeros(batch, 3, side, side),
                return_loss=True,
            )
    counted = {
        "all": float(counter.get_total_flops()),
        "linear": in_linears(counter, model, layers(model)),
        "attention": in_attention(counter),
    }
    return {name: 3 * count / batch for name, count in counted.items()}
