"""BERT's masks are its batches' own: transformers makes none, also where it cannot ask the device whether one is needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import masking_utils
from transformers.models.bert import modeling_bert

from experiments.components.workload import Context
from experiments.datasets import texts
from experiments.trial import DataSource
from experiments.workloads import bert, bert_inference

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=8, validation_rows=4, seed=0)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def masks_given(monkeypatch: pytest.MonkeyPatch, data: DataSource, module: Any, **values: Any) -> list[torch.Tensor | None]:
    """What a step gives to the attention of each layer, where transformers cannot tell that a mask hides nothing: as 5.17 cannot while a
    CUDA graph is recorded."""
    monkeypatch.setattr(masking_utils, "_ignore_bidirectional_mask_sdpa", lambda *_, **__: False)
    given: list[torch.Tensor | None] = []
    sdpa, eager = torch.nn.functional.scaled_dot_product_attention, modeling_bert.eager_attention_forward

    def fused(*at: Any, **named: Any) -> torch.Tensor:
        given.append(named["attn_mask"])
        return sdpa(*at, **named)

    def plain(model: Any, query: Any, key: Any, value: Any, mask: torch.Tensor | None, **named: Any) -> Any:
        given.append(mask)
        return eager(model, query, key, value, mask, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fused)
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", plain)
    parameters = module.Parameters(batch_size=2, seed=7, sequence_length=32, **values)
    one = module.build(Context(parameters, data, "cpu", 0, 1, 2))
    model = one.model()
    one.loss(model, one.prepare(next(iter(one.batches()))))
    assert len(given) == model.config.num_hidden_layers > 0
    return given


@pytest.mark.parametrize("module", [bert, bert_inference])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_full_samples_have_no_mask(monkeypatch: pytest.MonkeyPatch, data: DataSource, module: Any, attention: str) -> None:
    """The fused kernels refuse the mask that would be made, so that attention would be computed without them."""
    given = masks_given(monkeypatch, data, module, lengths="full", attention=attention)
    assert all(mask is None for mask in given)


@pytest.mark.parametrize("padding", ["kept", "removed"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_others_have_their_batchs_own(monkeypatch: pytest.MonkeyPatch, data: DataSource, padding: str, attention: str) -> None:
    given = masks_given(monkeypatch, data, bert, lengths="drawn", padding=padding, attention=attention)
    for mask in given:
        assert mask is not None and (mask != mask.flatten()[0]).any(), "it hides some of the tokens"


def test_a_transformers_whose_bert_knows_no_other_attention_is_given_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(modeling_bert, "ALL_ATTENTION_FUNCTIONS")
    assert [bert.attention_at_transformers(name) for name in ("eager", "sdpa")] == ["eager", "sdpa"]


@pytest.mark.parametrize("lengths", ["full", "drawn"])
def test_as_transformers_itself_computes_it(data: DataSource, lengths: str) -> None:
    """With its own `sdpa` and ours: without a mask, where attention must not be causal, and on a batch whose padding hides tokens."""
    parameters = bert.Parameters(batch_size=2, seed=7, sequence_length=32, lengths=lengths, attention="sdpa", dropout=0.0)
    one = bert.build(Context(parameters, data, "cpu", 0, 1, 2))
    torch.manual_seed(0)
    model = one.model().double()
    batch = one.prepare(next(iter(one.batches())))
    ours = one.loss(model, batch)
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(ours, one.loss(model, batch), rtol=1e-9, atol=1e-9)
