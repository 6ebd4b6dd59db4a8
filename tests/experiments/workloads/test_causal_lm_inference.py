"""Inference of language models: decoding with the static cache against whole forward passes, phases, FLOPs, a trial, the suites."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cluster.journal.journal import JournalWriter, read_journal
from cluster.pools.pool import load_pools
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.components.workload import Context, Unsupported
from experiments.datasets import texts
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.summary import summarise
from experiments.trial import DataSource, Trial
from experiments.workloads import causal_lm_inference
from experiments.workloads.causal_lm_inference import model
from experiments.workloads.causal_lm_inference.model import Decoder, Reader, StaticCache, prefill

PROMPT, NEW = 20, 6
SHORT: dict[str, Any] = {"batch_size": 3, "seed": 7, "sequence_length": PROMPT, "evaluation_batch_size": 4, "evaluation_samples": 8}
DECODE: dict[str, Any] = {**SHORT, "phase": "decode", "new_tokens": NEW}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=32, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def build(data: DataSource, values: dict[str, Any]) -> Any:
    parameters = causal_lm_inference.Parameters(**values)
    return causal_lm_inference.build(Context(parameters, data, "cpu", 0, 1, int(parameters.batch_size)))


@pytest.mark.parametrize("model", ["llama3-tiny", "qwen3-tiny"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_tokens_are_those_of_whole_forward_passes(model: str, attention: str, data: DataSource) -> None:
    one = build(data, {**DECODE, "model": model, "attention": attention})
    torch.manual_seed(1)
    reader = one.model()
    prompts = next(one.batches())["input_ids"]
    with torch.inference_mode():
        tokens = prompts
        for _ in range(NEW):
            hidden = reader.decoder.model(input_ids=tokens, use_cache=False).last_hidden_state
            scores = reader.decoder.lm_head(hidden[:, -1])
            tokens = torch.cat([tokens, scores.argmax(dim=-1, keepdim=True)], dim=1)
        cache = StaticCache(one.shape.layers, PROMPT + NEW, prompts.device)
        decoder = Decoder(reader, cache, prompts, graph=False)
        for _ in range(2):  # the second time over what the first has written
            written = []
            decoder.write(0)
            for count in range(1, NEW + 1):
                decoder.write(count)
                written.append(decoder.token.clone())
            torch.testing.assert_close(torch.cat(written, dim=1), tokens[:, PROMPT:])
        torch.testing.assert_close(decoder.scores, scores)
        first = prefill(reader, StaticCache(one.shape.layers, PROMPT, prompts.device), prompts)
    torch.testing.assert_close(first.argmax(dim=-1), tokens[:, PROMPT])
    keys = cache.keys[0]
    assert keys is not None and keys.shape == (3, one.shape.kv_heads, PROMPT + NEW, one.shape.head)


def test_a_recorded_token_is_launched_once_its_graph_is_left_out(data: DataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay here computes anew: no GPU."""
    done: list[str] = []

    def recorded(call: Callable[[], None]) -> tuple[Callable[[], None], None]:
        def replay() -> None:
            done.append("replay")
            call()

        return replay, None

    monkeypatch.setattr(model, "recorded", recorded)
    monkeypatch.setattr(model, "beside", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    parameters = causal_lm_inference.Parameters(**{**DECODE, "cuda_graph": True})
    one = causal_lm_inference.build(Context(parameters, data, "cuda", 0, 1, 3))
    one.leave_graphs_out()  # before there is one
    reader, batch = one.model(), next(one.batches())
    with torch.inference_mode():
        first = one.loss(reader, batch)
        assert done == ["replay"] * NEW
        one.leave_graphs_out()
        assert one.loss(reader, batch) == first and done == ["replay"] * NEW


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_flops_are_what_torch_counts_where_all_pairs_are_computed(phase: str, data: DataSource) -> None:
    one = build(data, {**(DECODE if phase == "decode" else SHORT), "attention": "eager"})
    model, batch = one.model(), next(one.batches())
    one.projection = torch.mean  # not of the model
    with torch.inference_mode():
        one.loss(model, batch)  # the prompt is read before the first step
        with FlopCounterMode(display=False) as counter:
            one.loss(model, batch)
    heads = one.shape.layers * one.shape.heads * one.shape.head
    exact = (PROMPT * (PROMPT + 1) / 2) if phase == "prefill" else NEW * PROMPT + NEW * (NEW - 1) / 2
    computed = PROMPT**2 if phase == "prefill" else NEW * (PROMPT + NEW)  # eager attention leaves no pair out
    assert one.flops_per_sample() + 4 * heads * (computed - exact) == pytest.approx(counter.get_total_flops() / 3, rel=1e-9)
    assert one.tokens_per_sample == (PROMPT if phase == "prefill" else NEW)


def trial(values: dict[str, Any], data: DataSource) -> Trial:
    parameters = causal_lm_inference.Parameters(**values, steps=4, warmup_steps=2, threads=1, execution="synchronous")
    empty: dict[str, Any] = {"key_parts": {}, "axes": {}}
    named = {"key": "0" * 16, "sweep_id": "s", "suite": "s", "workload": "causal_lm_inference", "pool": "cpu", "device": "cpu", "cell": "c"}
    return Trial(**named, **empty, repeat=1, index=0, parameters=parameters.model_dump(mode="json"), data=data)


@pytest.mark.parametrize("values", [SHORT, DECODE])
def test_a_trial_infers_and_has_the_latency_of_a_token(values: dict[str, Any], data: DataSource, tmp_path: Path) -> None:
    with Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        context = TrialSession(trial({**values, "precision": "bf16", "evaluate": True}, data), Ranks(), recorder, tmp_path).run()
    journal = read_journal(tmp_path / "journal.jsonl")
    assert isinstance(context.train_step.plain, Reader)
    assert {one.dtype for one in context.train_step.plain.parameters()} == {torch.bfloat16}
    assert context.train_step.plain.decoder.model.rotary_emb.inv_freq.dtype == torch.float32  # type: ignore[union-attr]
    summary = summarise(journal.steps, journal.window, journal.evaluations)
    tokens = NEW if values is DECODE else PROMPT
    assert journal.window and journal.window["tokens_per_sample"] == tokens
    assert summary["latency_per_token_s"] == pytest.approx(float(summary["latency_p50_s"] or 0) / tokens)
    assert summary["tokens_per_s"] == pytest.approx(float(summary["throughput"] or 0) * tokens)
    assert summary["eval_loss_before"] == pytest.approx(float(summary["eval_chance_loss_before"] or 0), rel=0.1)
    if values is DECODE:
        assert len({step["loss"] for step in journal.steps}) == 1, "every step writes the same tokens"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"cuda_graph": True}, "cuda_graph has no effect with phase prefill"),
        ({"compile": "model", "compile_mode": "reduce-overhead"}, "set cuda_graph in phase decode"),
        ({"phase": "decode", "compile": "layer"}, "compile layer: each layer's place in the cache"),
        ({"attention": "varlen"}, "attention varlen: of packed documents"),
        ({"learning_rate": 1.0}, "learning_rate has no effect"),
        ({"tuning": "lora"}, "tuning"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        causal_lm_inference.Parameters(**values)


def test_a_cuda_graph_elsewhere_is_unsupported(data: DataSource) -> None:
    with pytest.raises(Unsupported, match="cuda_graph: only on cuda, and this is cpu"):
        build(data, {**DECODE, "cuda_graph": True})


def test_the_suites_expand() -> None:
    def cells(name: str, profile: str = "full") -> list[Any]:
        return expand(load_suite(name, profile=profile, pools=load_pools()))

    assert {(cell.parameters["compile"], cell.parameters["activation_checkpointing"]) for cell in cells("llm")} >= {("layer", False)}
    two = cells("llm", "x2")
    settings = {tuple(cell.parameters[name] for name in ("model", "devices", "parallel", "sequence_length")) for cell in two}
    assert settings == {("llama3-8b", 2, "fsdp2", 8192)}
    assert {cell.parameters["tuning"] for cell in cells("llm", "lora")} == {"lora"}
    assert len(cells("llm", "cuda")) == 20 and len(cells("llm", "smoke")) == 6
    for profile in ("full", "cuda"):
        found = {(cell.parameters["phase"], cell.parameters["cuda_graph"]) for cell in cells("llm_inference", profile)}
        assert found == {("prefill", False), ("decode", False), ("decode", True)}
    for name in ("llm", "llm_inference"):
        assert {cell.pool for cell in cells(name, "smoke")} == {"cpu"}
