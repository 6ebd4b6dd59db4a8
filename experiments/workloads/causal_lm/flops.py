"""FLOPs of a decoder, of matrix products and attention alone; a multiplication and an addition are two.

What is computed again in the backward pass (activation checkpointing, attention's scores in fused kernels) is not counted.
"""

from __future__ import annotations

from collections.abc import Collection

from experiments.workloads.causal_lm.shapes import PROJECTIONS, Shape

ATTENTION, MLP = PROJECTIONS[:4], PROJECTIONS[4:]
TARGETS: dict[str, tuple[str, ...]] = {"all": PROJECTIONS, "attention": ATTENTION, "mlp": MLP}  # of adapters, by `lora_targets`


def forward_flops(shape: Shape, tokens: int, pairs: float, *, scored: int | None = None) -> float:
    """Of `tokens` tokens through all blocks, with `pairs` pairs of query and key, of which `scored` tokens (None: all) are scored.

    A pair costs the product of query and key and the sum over values, each 2 x heads x head.
    """
    blocks = tokens * sum(shape.projections.values()) + 2 * pairs * shape.heads * shape.head
    return 2.0 * shape.layers * blocks + head_flops(shape, tokens if scored is None else scored)


def head_flops(shape: Shape, tokens: int) -> float:
    """Of `forward_flops`, those that score so many tokens."""
    return 2.0 * tokens * shape.width * shape.vocabulary


def training_flops(shape: Shape, tokens: int, pairs: float) -> float:
    """Of a step that trains all weights: three forward passes, since each product has a gradient for either factor."""
    return 3 * forward_flops(shape, tokens, pairs)


def adapter_flops(shape: Shape, tokens: int, pairs: float, *, rank: int, targets: Collection[str]) -> float:
    """Of a step that trains adapters of `rank` at the linear layers `targets` beside frozen weights.

    A frozen layer has no gradient of its weights, and one of its input only where something that is trained comes before it: of the
    first block's first layers, and of all before the first adapter, there is none. The frozen scores of the vocabulary have one.
    """
    total = 0.0
    for layer in range(shape.layers):
        flows = layer > 0  # whether what enters depends on something that is trained
        for stage in (PROJECTIONS[:3], (), PROJECTIONS[3:4], PROJECTIONS[4:6], PROJECTIONS[6:]):
            if not stage:  # attention, between the projections of queries, keys and values and that of its output
                total += 2 * 2 * pairs * shape.heads * shape.head * (3 if flows else 1)
                continue
            for name in stage:
                total += 2 * tokens * shape.projections[name] * (2 if flows else 1)
                if name in targets:
                    inputs, outputs = shape.ends[name]
                    total += 2 * tokens * rank * (inputs * (3 if flows else 2) + outputs * 3)
            flows = flows or any(name in targets for name in stage)
    return total + 2 * head_flops(shape, tokens)
