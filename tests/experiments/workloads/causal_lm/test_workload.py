"""Training of language models: golden losses, what is learnt, packing, adapters, weights from a folder, what is refused."""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.components.workload import Context, DataError, Unsupported, flops_by_precision
from experiments.datasets import texts
from experiments.parameters import work_parameters
from experiments.trial import DataSource
from experiments.workloads import causal_lm, causal_lm_inference
from experiments.workloads.causal_lm.flops import training_flops
from experiments.workloads.causal_lm.model import cast, make

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT: dict[str, Any] = {"batch_size": 4, "seed": 7, "sequence_length": 48, "evaluation_batch_size": 4, "evaluation_samples": 8}
GOLDEN = {"llama3-tiny": [8.33690, 8.33168, 8.31886], "qwen3-tiny": [8.30616, 8.30036, 8.29322]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=32, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def build(data: DataSource, device: str = "cpu", facts: dict[str, str] | None = None, **values: Any) -> Any:
    parameters = causal_lm.Parameters(**{**SHORT, **values})
    known = facts if facts is not None else {}
    return causal_lm.build(Context(parameters, data, device, 0, 1, int(parameters.batch_size), fact=known.__setitem__))


def losses(one: Any, steps: int, rate: float = 1e-3) -> tuple[Any, list[float]]:
    torch.manual_seed(0)
    model, found = one.model(), []
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=rate)
    for batch in islice(one.batches(), steps):
        loss = one.loss(model, one.prepare(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return model, found


@pytest.mark.parametrize("model", GOLDEN)
def test_the_first_losses_are_the_golden_ones_however_they_are_computed(model: str, data: DataSource) -> None:
    """A refactor changes nothing: model, initial weights, drawn text, packing and data order all stand behind these."""
    ways: list[dict[str, Any]] = [{}, {"attention": "eager"}, {"cross_entropy": "logits"}]
    for way in ways:
        _, found = losses(build(data, model=model, **way), 3)
        assert found == pytest.approx(GOLDEN[model], rel=1e-4), way


def test_what_is_learnt_is_below_chance_on_held_out_text(data: DataSource) -> None:
    one = build(data, learning_rate=1e-2)
    model, found = losses(one, 40, rate=1e-2)
    assert sum(found[-5:]) / 5 < sum(found[:5]) / 5 - 1
    with torch.no_grad():
        evaluated = one.evaluate(model.eval(), one.prepare)
    assert evaluated["chance_loss"] == pytest.approx(math.log(4096))
    assert evaluated["loss"] < evaluated["chance_loss"] - 0.5


def test_blocks_keep_documents_apart(data: DataSource) -> None:
    """The loss of a packed sequence's second document is that of the document alone; with the plain mask it is not."""
    one = build(data, cross_entropy="logits")
    torch.manual_seed(0)
    decoder = one.model().eval().decoder
    tokens = torch.arange(5, 29)[None]
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None]
    from experiments.components.layers.causal_attention import document_mask

    with torch.no_grad():
        alone = decoder.model(input_ids=tokens[:, 10:], position_ids=positions[:, 10:], use_cache=False).last_hidden_state
        packed = decoder.model(
            input_ids=tokens, position_ids=positions, attention_mask=document_mask(positions), use_cache=False
        ).last_hidden_state
        plain = decoder.model(input_ids=tokens, position_ids=torch.arange(24)[None], use_cache=False).last_hidden_state
    torch.testing.assert_close(packed[:, 10:], alone, rtol=1e-4, atol=1e-5)
    assert (plain[:, 10:] - alone).abs().max() > 0.01


def test_flops_are_of_the_documents_that_were_loaded(data: DataSource) -> None:
    one = build(data, sequence_length=1500, batch_size=2)
    assert one.flops_per_sample() is None
    batches = list(islice(one.batches(), 2))
    pairs = sum(int((batch["position_ids"] + 1).sum()) for batch in batches) / 4
    assert pairs < 1500 * 1501 / 2
    assert one.flops_per_sample() == pytest.approx(training_flops(one.shape, 1500, pairs), rel=1e-12)
    plain = build(data, sequence_length=1500, batch_size=2, packing="plain")
    assert "position_ids" not in next(plain.batches())
    assert plain.flops_per_sample() == pytest.approx(training_flops(one.shape, 1500, 1500 * 1501 / 2), rel=1e-12)
    assert one.tokens_per_sample == 1500
    weights = one.shape.layers * sum(one.shape.projections.values())
    assert one.linear_flops_per_sample() == 3 * 2 * 1500 * weights
    adapted = build(data, tuning="lora", lora_rank=4, lora_targets="attention").linear_flops_per_sample()
    assert 2 * 2 * 48 * weights * 0.75 < adapted < 2 * 2 * 48 * weights * 1.1  # no gradients of the weights; of the first block's inputs


def test_adapters_alone_are_trained(data: DataSource) -> None:
    pytest.importorskip("peft")
    one = build(data, tuning="lora", lora_rank=4, lora_targets="attention", precision="bf16", cast_weights=True)
    torch.manual_seed(0)
    model = one.model()
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * 2 * 4 and all(".lora_" in name for name in trained)
    assert {weight.dtype for weight in trained.values()} == {torch.float32}
    assert {weight.dtype for weight in model.parameters() if not weight.requires_grad} == {torch.bfloat16}
    assert model.decoder.model.rotary_emb.inv_freq.dtype == torch.float32
    assert len(one.layers(model)) == 2
    before = [weight.clone() for weight in trained.values()]
    with torch.autocast("cpu", torch.bfloat16):
        one.loss(model, next(one.batches())).backward()
    torch.optim.AdamW(trained.values(), lr=1e-2).step()
    assert any(not torch.equal(old, new) for old, new in zip(before, trained.values(), strict=True))


def test_adapters_without_their_library_are_unsupported(data: DataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(Unsupported, match="tuning lora: the library peft cannot be imported here"):
        build(data, tuning="lora").model()


def test_weights_of_a_folder_are_read_with_their_shape(data: DataSource, tmp_path: Path) -> None:
    torch.manual_seed(3)
    kept = make(causal_lm.Parameters(model="llama3-tiny"))
    kept.save_pretrained(tmp_path / "kept")  # type: ignore[operator]
    facts: dict[str, str] = {}
    one = build(data, model="own", weights=str(tmp_path / "kept"), facts=facts)
    assert (one.shape.width, one.shape.head, one.shape.family) == (64, 16, "llama")
    read = one.model().decoder
    assert all(torch.equal(old, new) for old, new in zip(kept.parameters(), read.parameters(), strict=True))
    assert facts == {"initial_weights": str(tmp_path / "kept")}
    build(data, facts=facts)
    assert facts == {"initial_weights": "random"}
    with pytest.raises(DataError, match=f"weights {tmp_path}/nothing"):
        build(data, model="own", weights=f"{tmp_path}/nothing")


def test_a_folder_with_a_shape_alone_has_random_weights_of_the_seed(data: DataSource, tmp_path: Path) -> None:
    """Any size of a family is measured so: one file, no weights to download."""
    make(causal_lm.Parameters(model="llama3-tiny")).config.save_pretrained(tmp_path)  # type: ignore[operator, union-attr]
    changes = {"num_hidden_layers": 3, "attention_bias": True, "hidden_act": "gelu", "rms_norm_eps": 1e-3, "dtype": "bfloat16"}
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **changes}))
    facts: dict[str, str] = {}
    one = build(data, model="own", weights=str(tmp_path), facts=facts)
    torch.manual_seed(5)
    drawn = one.model().decoder
    assert len(drawn.model.layers) == one.shape.layers == 3 and facts == {"initial_weights": "random"}
    first = drawn.model.layers[0]
    assert first.self_attn.q_proj.bias is not None and first.input_layernorm.variance_epsilon == 1e-3 and not drawn.config.use_cache
    assert drawn.config.hidden_act == "gelu" and {parameter.dtype for parameter in drawn.parameters()} == {torch.float32}
    torch.manual_seed(5)
    again = build(data, model="own", weights=str(tmp_path)).model().decoder
    assert all(torch.equal(old, new) for old, new in zip(drawn.parameters(), again.parameters(), strict=True))


def test_weights_in_another_format_are_no_random_ones(data: DataSource, tmp_path: Path) -> None:
    make(causal_lm.Parameters(model="llama3-tiny")).config.save_pretrained(tmp_path)  # type: ignore[operator, union-attr]
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickled")
    facts: dict[str, str] = {}
    one = build(data, model="own", weights=str(tmp_path), facts=facts)
    assert facts == {"initial_weights": str(tmp_path)}
    with pytest.raises(DataError, match=f"weights {tmp_path}: .*; safetensors are read, as save_pretrained writes them"):
        one.model()


def test_weights_that_are_cut_off_name_their_folder(data: DataSource, tmp_path: Path) -> None:
    kept: Any = make(causal_lm.Parameters(model="llama3-tiny"))
    kept.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(DataError, match=f"weights {tmp_path}: ") as caught:
        build(data, model="own", weights=str(tmp_path)).model()
    assert "no other format" not in str(caught.value), "it is the right one"


def test_weights_of_a_folder_may_be_of_any_size_and_are_the_work() -> None:
    for schema in (causal_lm.Parameters, causal_lm_inference.Parameters):
        assert "weights" in work_parameters(schema)


def test_what_a_token_sees_and_what_is_trained_are_the_work() -> None:
    """Blocks cost less than plain sequences, and less is learnt from them: neither is faster than the other."""
    assert {"packing", "tuning"} <= {*work_parameters(causal_lm.Parameters)}


def test_of_adapters_it_is_not_known_which_of_a_layers_products_are_in_8_bits(data: DataSource) -> None:
    """A frozen layer has two products and not three, of which switchback computes both in 8 bits."""
    adapted = {precision: build(data, tuning="lora", precision=precision) for precision in ("bf16", "fp8", "fp8_switchback")}
    plain = adapted["bf16"].linear_flops_per_sample()
    assert plain and {name: one.linear_flops_per_sample() for name, one in adapted.items()} == {
        "bf16": plain,
        "fp8": plain,
        "fp8_switchback": None,
    }
    assert build(data, precision="fp8_switchback").linear_flops_per_sample() == build(data).linear_flops_per_sample()
    assert flops_by_precision(adapted["fp8_switchback"], "fp8_switchback", 1e9) is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model": "own"}, "model own needs it"),
        ({"weights": "/some/folder"}, "a folder or hub id goes with model own"),
        ({"model": "own", "weights": "meta/llama"}, "revision must be its commit"),
        ({"lora_rank": 4}, "lora_rank has no effect with tuning full"),
        ({"cast_weights": True}, "cast_weights has no effect with tuning full"),
        ({"tuning": "lora", "cast_weights": True, "parallel": "fsdp2"}, "cast_weights: not with shards"),
        (
            {"tuning": "lora", "cast_weights": True},
            "cast_weights has no effect with precision fp32; leave it at false, or set precision to",
        ),
        ({"model": "llama3-9b"}, "llama3-8b"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        causal_lm.Parameters(**values)


def test_an_attention_that_the_device_lacks_is_unsupported(data: DataSource) -> None:
    with pytest.raises(Unsupported, match="attention varlen: only on cuda"):
        build(data, attention="varlen", precision="bf16")
    assert build(data, device="cuda", attention="varlen", precision="bf16").parameters.attention == "varlen"


def test_a_tokenizer_that_is_too_large_is_refused(data: DataSource, tmp_path: Path) -> None:
    import json

    assert data.tokenizer
    told = json.loads((Path(data.tokenizer) / "tokenizer.json").read_text())
    told["model"]["vocab"] |= {f"more{number}": 4096 + number for number in range(3)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="the tokenizer has 4099 tokens, the model 4096"):
        build(data, tokenizer=str(tmp_path)).model()


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", "float32"), ("tf32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16"), ("fp8", "bfloat16")]
)
def test_weights_are_cast_to_the_16_bits_of_the_precision(precision: str, kind: str) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    cast([weight], precision)
    assert weight.dtype is getattr(torch, kind)
