"""FLOPs of language models: exactly what torch counts, forward and backward, of all weights and of adapters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments.workloads.causal_lm.flops import TARGETS, adapter_flops, forward_flops, head_flops, training_flops
from experiments.workloads.causal_lm.model import Learner, adapt, make
from experiments.workloads.causal_lm.parameters import Parameters
from experiments.workloads.causal_lm.shapes import SHAPES

TOKENS, BATCH = 24, 3


def counted(**values: Any) -> int:
    """What FlopCounterMode counts in a step's forward and backward pass with eager attention, which computes all pairs of tokens."""
    parameters = Parameters(attention="eager", sequence_length=TOKENS, **values)
    decoder = make(parameters)
    if parameters.tuning == "lora":
        decoder = adapt(decoder, parameters)
    learner = Learner(decoder, attention="eager", loss=parameters.cross_entropy)
    tokens = torch.randint(0, 4096, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        learner(tokens, tokens).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("model", ["llama3-tiny", "qwen3-tiny"])
@pytest.mark.parametrize("loss", ["logits", "chunked"])
def test_training_is_what_torch_counts(model: str, loss: str) -> None:
    found = counted(model=model, cross_entropy=loss)
    assert BATCH * training_flops(SHAPES[model], TOKENS, TOKENS**2) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("targets", ["all", "attention"])
def test_adapters_are_what_torch_counts(targets: Any) -> None:
    pytest.importorskip("peft")
    found = counted(model="qwen3-tiny", tuning="lora", lora_rank=8, lora_targets=targets)
    expected = adapter_flops(SHAPES["qwen3-tiny"], TOKENS, TOKENS**2, rank=8, targets=TARGETS[targets])
    assert BATCH * expected == pytest.approx(found, rel=1e-9)


def test_a_published_shape_costs_six_flops_a_weight_and_its_attention() -> None:
    shape = SHAPES["llama3-8b"]
    tokens, weights = 8192, 8_030_261_248 - 128_256 * 4096  # the embedding is looked up
    pairs = tokens * (tokens + 1) / 2
    assert training_flops(shape, tokens, pairs) == pytest.approx(6 * weights * tokens + 12 * 32 * 4096 * pairs, rel=1e-4)
    assert head_flops(shape, 3) == 2 * 3 * 4096 * 128_256
    assert forward_flops(shape, tokens, pairs, scored=1) == pytest.approx(
        training_flops(shape, tokens, pairs) / 3 - 2 * (tokens - 1) * 128_256 * 4096, rel=1e-12
    )
