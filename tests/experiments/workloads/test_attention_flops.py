"""The FLOPs that a workload says a step has, and of these its attention, are those that a step makes, however attention is computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from experiments import workloads
from experiments.components.flop_count import counting, in_attention
from experiments.components.layers import causal_attention, document_attention
from experiments.components.workload import Context, attention_flops, trains
from experiments.workloads.causal_lm.flops import head_flops
from tasks.sweep import dataset
from tests.experiments.workloads.test_linear_flops import BATCH, SETTINGS

KINDS = {  # of attention, by workload: all that a CPU computes
    "bert": ("eager", "sdpa"),
    "bert_inference": ("eager", "sdpa"),
    "bridgetower": ("eager", "sdpa"),
    "bridgetower_inference": ("eager", "sdpa"),
    "clip": ("eager", "sdpa"),
    "t5": ("eager", "sdpa"),
    "vit": ("math", "sdpa"),
}


def built(name: str, **values: Any) -> Any:
    module = workloads.load(name)
    parameters = module.Parameters(batch_size=BATCH, **{**SETTINGS[name], **values})
    values = parameters.model_dump(mode="json")
    dataset.build(values)
    return module.build(Context(parameters, dataset.resolve(values), "cpu", 0, 1, BATCH))


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in KINDS.items() for kind in kinds])
def test_flops_are_those_that_torch_counts_in_a_step(name: str, kind: str) -> None:
    """A training step is counted as three forward passes; what the loss compares (CLIP, BridgeTower) depends on the batch and is small."""
    one: Any = built(name, attention=kind)
    model = one.model()
    one.projection = torch.mean  # the loss of inference, no part of the model
    with torch.no_grad(), counting() as counter:
        one.loss(model, one.prepare(next(iter(one.batches()))))
    passes = (3 if trains(one) else 1) / BATCH
    assert attention_flops(one) == pytest.approx(in_attention(counter) * passes, rel=1e-6)
    assert one.flops_per_sample() == pytest.approx(counter.get_total_flops() * passes, rel=0.001)
    assert 0 < one.attention_flops_per_sample() < one.flops_per_sample() - one.linear_flops_per_sample()


@pytest.mark.parametrize(
    ("name", "values"), [("bert", {"lengths": "drawn", "padding": "removed"}), ("causal_lm", {}), ("causal_lm", {"packing": "block"})]
)
def test_flops_are_the_same_of_kernels_that_only_a_gpu_has(name: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_attention, "why_not_varlen", lambda *_: None)
    monkeypatch.setattr(causal_attention, "why_not", lambda *_: None)
    found = {}
    for kind in ("eager", "sdpa", "varlen"):
        one = built(name, attention=kind, **values)
        next(iter(one.batches()))
        found[kind] = (one.flops_per_sample(), attention_flops(one))
    assert found["eager"] == found["sdpa"] == found["varlen"]
    assert all(0 < of_attention < whole for whole, of_attention in found.values())


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


@pytest.mark.parametrize("passes", ["apart", "together"])
def test_of_flava_attention_is_that_of_each_kind_of_step(passes: str) -> None:
    """An image's unmasked pass, of which no loss is taken, is not trained: of its two passes' attention a step has twice as much."""
    one = built("flava", kinds="balanced", passes=passes, attention="sdpa")
    model, batches = one.model(), iter(one.batches())
    found = []
    for batch in (next(batches) for _ in range(3)):
        with torch.no_grad(), counting() as counter:
            one.loss(model, one.prepare(batch))
        found.append(in_attention(counter) * (2 if (passes, batch["kind"]) == ("apart", "image") else 3) / BATCH)
    assert attention_flops(one) == pytest.approx(sum(found) / 3, rel=1e-6)
    assert 0 < one.attention_flops_per_sample() < one.flops_per_sample() - one.linear_flops_per_sample()


def test_of_stable_diffusion_attention_is_that_of_all_calls_of_the_unet_and_of_the_decoder() -> None:
    one = built("stable_diffusion", text_encoder=False)
    with torch.no_grad(), counting() as counter:
        one.model()(one.prepare(next(iter(one.batches()))))
    assert attention_flops(one) == pytest.approx(in_attention(counter) / BATCH, rel=1e-6)
    assert one.flops_per_sample() == pytest.approx(counter.get_total_flops() / BATCH, rel=0.001)
