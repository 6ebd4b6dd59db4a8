"""The FLOPs that a workload says its attention has are those that a step makes in it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from experiments import workloads
from experiments.components.flop_count import in_attention
from experiments.components.workload import Context, attention_flops, trains
from experiments.workloads.causal_lm.flops import head_flops
from tasks.sweep import dataset
from tests.experiments.workloads.test_linear_flops import BATCH, SETTINGS


def built(name: str) -> Any:
    module = workloads.load(name)
    parameters = module.Parameters(batch_size=BATCH, **SETTINGS[name])
    values = parameters.model_dump(mode="json")
    dataset.build(values)
    return module.build(Context(parameters, dataset.resolve(values), "cpu", 0, 1, BATCH))


@pytest.mark.parametrize("name", ["bert", "bert_inference", "bridgetower", "bridgetower_inference", "clip", "t5", "vit"])
def test_flops_of_attention_are_those_of_the_batched_products_of_a_step(name: str) -> None:
    """A training step is counted as three forward passes. BridgeTower's are counted as its FLOPs are, which leaves out attention that is a
    single operation."""
    one = built(name)
    model = one.model()
    products = nullcontext() if name.startswith("bridgetower") else sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), products, FlopCounterMode(display=False) as counter:
        one.loss(model, one.prepare(next(iter(one.batches()))))
    assert attention_flops(one) == pytest.approx(in_attention(counter) * (3 if trains(one) else 1) / BATCH, rel=1e-6)
    assert 0 < one.attention_flops_per_sample() < one.flops_per_sample() - one.linear_flops_per_sample()


def test_of_a_decoder_attention_is_what_is_neither_in_its_layers_nor_in_its_head() -> None:
    one = built("causal_lm")
    assert attention_flops(one) is None and one.flops_per_sample() is None, "it depends on the documents, and none is loaded yet"
    next(iter(one.batches()))
    rest = 3 * head_flops(one.shape, one.parameters.sequence_length)
    assert attention_flops(one) == pytest.approx(one.flops_per_sample() - one.linear_flops_per_sample() - rest)


def test_of_a_decoder_that_reads_or_writes_attention_is_what_its_pairs_take() -> None:
    one = built("causal_lm_inference")
    scored = head_flops(one.shape, 1 if one.parameters.phase == "prefill" else one.parameters.new_tokens)
    assert attention_flops(one) == pytest.approx(one.flops_per_sample() - one.linear_flops_per_sample() - scored)


def test_of_written_text_attention_is_a_third_of_that_of_learning_it() -> None:
    assert attention_flops(built("t5_inference")) == pytest.approx(attention_flops(built("t5")) / 3)


def test_a_workload_that_does_not_say_has_none() -> None:
    assert attention_flops(built("synthetic")) is None
