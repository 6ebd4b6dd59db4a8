"""BERT and T5: the published sizes and FLOPs, golden losses, text that is drawn and text that is not as it should be, their suites."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cluster.journal.journal import JournalWriter, read_journal
from cluster.pools.pool import load_pools
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.components.workload import Context, DataError, Unsupported, compile_units
from experiments.datasets import texts
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.summary import summarise
from experiments.trial import DataSource
from experiments.workloads import bert, bert_inference, t5, t5_inference
from tasks.sweep import dataset
from tests.trial_support import cpu_trial

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT: dict[str, Any] = {"batch_size": 4, "seed": 7, "evaluation_batch_size": 4, "evaluation_samples": 8}
BERT: dict[str, Any] = {**SHORT, "sequence_length": 24}
T5: dict[str, Any] = {**SHORT, "source_length": 32, "target_length": 8}
GOLDEN = {"bert": [8.343, 8.30068, 8.32918], "t5": [8.95322, 8.69947, 8.99197]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=32, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def build(module: Any, data: DataSource, values: dict[str, Any], notes: list[str] | None = None) -> Any:
    parameters = module.Parameters(**values)
    note = notes.append if notes is not None else (lambda text: None)
    return module.build(Context(parameters, data, "cpu", 0, 1, parameters.batch_size, note))


@pytest.mark.parametrize("size", ["3b", "large", "base", "small"])
def test_t5s_parameters_are_the_published_ones(size: Any) -> None:
    published = {"3b": 2_851_598_336, "large": 737_668_096, "base": 222_903_552, "small": 60_506_624}
    with torch.device("meta"):
        model = t5.make(t5.Parameters(model=size))
    assert sum(parameter.numel() for parameter in model.parameters()) == published[size]


@pytest.mark.parametrize(("size", "parameters"), [("base", 110_650_880), ("large", 336_689_408)])
def test_berts_parameters_are_the_published_ones(size: Any, parameters: int) -> None:
    """bert-large-uncased has 335,174,458 with 30,522 words, each of which is a row of 1024 and a bias of the head."""
    from transformers import BertForMaskedLM

    with torch.device("meta"):
        model = BertForMaskedLM(bert.config(bert.Parameters(model=size)))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert size == "base" or parameters == 335_174_458 + (32_000 - 30_522) * 1025


def test_flops_are_the_published_ones_and_what_torch_counts(data: DataSource) -> None:
    assert bert.flops("base", 512) == pytest.approx(367e9, rel=0.01)
    assert bert.flops("base", 128) == pytest.approx(86e9, rel=0.01)
    assert t5.flops("3b", 1024, 128) == pytest.approx(11.18e12, rel=0.01)
    from torch.utils.flop_counter import FlopCounterMode

    for module, values in ((bert, BERT), (bert, {**BERT, "prediction": "masked"}), (t5, T5)):
        one = build(module, data, values)
        model, batch = one.model(), one.prepare(next(one.batches()))
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            one.loss(model, batch)
        assert one.flops_per_sample() == pytest.approx(3 * counter.get_total_flops() / 4, rel=0.001), module.__name__


@pytest.mark.parametrize(("module", "values"), [(bert, BERT), (t5, T5)])
def test_the_first_losses_are_the_golden_ones_in_either_attention(module: Any, values: dict[str, Any], data: DataSource) -> None:
    """A refactor changes nothing: model, initial weights, drawn text, masks and data order all stand behind these."""
    for attention in ("eager", "sdpa"):
        one = build(module, data, {**values, "attention": attention})
        torch.manual_seed(0)
        model = one.model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for batch in islice(one.batches(), 3):
            loss = one.loss(model, one.prepare(batch))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses == pytest.approx(GOLDEN[module.__name__.rpartition(".")[2]], rel=1e-4), attention
    with torch.no_grad():
        found = one.evaluate(model, one.prepare)
    assert found["loss"] == pytest.approx(found["chance_loss"], rel=0.1)


def test_an_attention_that_would_silently_be_eager_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import T5ForConditionalGeneration

    monkeypatch.setattr(T5ForConditionalGeneration, "_supports_sdpa", False)  # as before transformers 5
    with pytest.raises(Unsupported, match="eagerly only"):
        t5.make(t5.Parameters(attention="sdpa"))


def test_a_drawn_document_is_a_function_of_its_row_and_its_summary_a_part_of_it(tmp_path: Path) -> None:
    text, summary = texts.document(0, "train", 3)
    assert texts.document(0, "train", 3) == (text, summary) != texts.document(0, "train", 4) != texts.document(1, "train", 4)
    assert 500 <= len(text.split()) < 920
    assert all(sentence.rstrip(".") + "." in text for sentence in summary.split(". ")) and len(summary) < len(text) / 5
    chosen = {"dataset": "drawn-text", "drawn_rows": 512}
    source, scenes = dataset.resolve(chosen), dataset.resolve({**chosen, "dataset": "drawn"})
    assert source and scenes and source.fingerprint != scenes.fingerprint and Path(source.uri).name == f"texts-{source.fingerprint}"


def test_batches_are_passages_and_documents_with_the_prefix(data: DataSource) -> None:
    one = build(bert, data, {**BERT, "sequence_length": 512})
    batch = next(one.batches())
    assert batch["input_ids"].shape == batch["labels"].shape == (4, 512)
    told = batch["labels"] != -100
    assert told.sum(dim=1).tolist() == [77] * 4, "15 % of every passage"
    assert (batch["input_ids"][~told] != 0).all(), "no padding"

    two = build(t5, data, {**T5, "source_length": 1200})
    batch, tokenizer = next(two.batches()), two.splits.tokenizer()
    assert batch["input_ids"].shape == (4, 1200) and batch["labels"].shape == (4, 8)
    real = batch["attention_mask"].bool()
    assert not real.all() and (batch["input_ids"][~real] == 0).all() and (batch["input_ids"][real] != 0).all()
    ends = [row[mask][-1].item() for row, mask in zip(batch["input_ids"], real, strict=True) if not mask.all()]
    assert ends and set(ends) == {tokenizer.token_to_id("</s>")}
    assert tokenizer.decode(batch["input_ids"][0].tolist()).strip().startswith("summarize: ")


def write(folder: Path, data: DataSource, **columns: Any) -> DataSource:
    for split in ("train", "validation"):
        pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), folder / f"{split}.parquet")
    return DataSource(uri=str(folder), fingerprint="g", tokenizer=data.tokenizer)


def test_text_of_yours_is_read_by_the_names_of_its_columns(tmp_path: Path, data: DataSource) -> None:
    long = ["ba bi bo " * 40] * 15
    yours = write(tmp_path, data, article=["", *long], highlights=[None, *["ba"] * 15])
    named = {**T5, "text_column": "article", "summary_column": "highlights", "batch_size": 12}
    notes: list[str] = []
    one = build(t5, yours, named, notes)
    shapes = [batch["labels"].shape for batch in islice(one.batches(), 3)]
    assert shapes == [(12, 8)] * 3
    assert len([note for note in notes if "train.parquet row 0: no article" in note]) == 1
    with pytest.raises(DataError, match=r"has no column 'text'; it has article, highlights"):
        build(t5, yours, T5)

    other = write(tmp_path, data, text=[1, 2, 3], summary=["a", "b", "c"])
    with pytest.raises(DataError, match=r"train.parquet: column 'text' holds int64, wanted text"):
        next(build(bert, other, BERT).batches())
    short = write(tmp_path, data, text=["ba", "", "bi"], summary=["a", "b", "c"])
    with pytest.raises(DataError, match="corrupt"):
        for _ in islice(build(t5, short, {**T5, "batch_size": 3}).batches(), 9):
            pass


def test_a_tokenizer_that_is_too_large_is_refused(tmp_path: Path, data: DataSource) -> None:
    assert data.tokenizer
    told = json.loads((Path(data.tokenizer) / "tokenizer.json").read_text())
    told["model"]["vocab"] |= {f"more{number}": 4096 + number for number in range(3)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    for module, values in ((bert, BERT), (t5, T5)):
        with pytest.raises(DataError, match="the tokenizer has 4099 tokens, the model 4096"):
            build(module, data, {**values, "tokenizer": str(tmp_path)}).model()


@pytest.mark.parametrize(("name", "module", "values"), [("bert_inference", bert_inference, BERT), ("t5_inference", t5_inference, T5)])
def test_a_trial_infers_and_has_its_latency(name: str, module: Any, values: dict[str, Any], data: DataSource, tmp_path: Path) -> None:
    parameters = module.Parameters(
        **{**values, "steps": 3, "warmup_steps": 2, "threads": 1, "precision": "bf16", "execution": "synchronous"}
    ).model_dump(mode="json")
    trial = cpu_trial(name, parameters, data)
    with Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        context = TrialSession(trial, Ranks(), recorder, tmp_path).run()
    journal = read_journal(tmp_path / "journal.jsonl")
    assert context.train_step.optimizer is None and {one.dtype for one in context.train_step.plain.parameters()} == {torch.bfloat16}
    summary = summarise(journal.steps, journal.window)
    assert summary["latency_per_sample_s"] == pytest.approx(float(summary["latency_p50_s"] or 0) / 4)
    assert journal.window and journal.window["flops_per_sample"] == pytest.approx(context.workload.flops_per_sample())
    with pytest.raises(ValueError, match="learning_rate has no effect"):
        module.Parameters(**values, learning_rate=1.0)


def test_summaries_are_written_to_their_full_length_in_either_attention(data: DataSource) -> None:
    scores = []
    for attention in ("eager", "sdpa"):
        one = build(t5_inference, data, {**T5, "attention": attention})
        torch.manual_seed(0)
        model, calls = one.model(), list[Any]()
        model.decoder.register_forward_hook(
            lambda module, arguments, given, output, calls=calls: calls.append(given["input_ids"].shape), with_kwargs=True
        )
        with torch.inference_mode():
            scores.append(float(one.loss(model, one.prepare(next(one.batches())))))
        assert calls == [(4, 1)] * 8, "one token at a time, the earlier ones' keys and values kept"
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)


def test_of_t5_in_inference_the_two_stacks_are_compiled_and_in_no_cuda_graph(data: DataSource) -> None:
    one = build(t5_inference, data, {**T5, "compile": "model"})
    model: Any = one.model()
    assert compile_units(one, model) == [model.encoder, model.decoder]
    with pytest.raises(ValueError, match="compile_mode reduce-overhead: a summary grows by a token at a time"):
        t5_inference.Parameters(**T5, compile="model", compile_mode="reduce-overhead")


def test_the_suites_are_the_documents_experiments() -> None:
    cells = expand(load_suite("bert", pools=load_pools()))
    found = {(cell.axes["pool"], cell.axes["sequence_length"], cell.axes["batch_size"]) for cell in cells}
    assert found == {(pool, length, batch) for pool in ("gaudi2", "a100") for length in (128, 512) for batch in (32, 64)}
    for cell in cells:
        values = cell.parameters
        assert (values["model"], values["devices"], values["learning_rate"]) == ("base", 8, 5e-5)
        assert values["precision"] == {"gaudi2": "bf16", "a100": "fp16"}[cell.pool]
        assert (values["engine"], values["hpu_graphs"]) == (("optimum_habana", True) if cell.pool == "gaudi2" else ("native", False))
    for cell in expand(load_suite("t5", pools=load_pools())):
        values = cell.parameters
        assert (values["model"], values["devices"], values["learning_rate"], values["precision"]) == ("3b", 8, 5e-5, "fp32")
        assert (values["source_length"], values["target_length"], values["prefix"]) == (1024, 128, "summarize: ")
        assert values["activation_checkpointing"] and values["batch_size"] in (1, 16)
    for name in ("bert", "bert_inference", "t5", "t5_inference"):
        on_gpu = expand(load_suite(name, profile="cuda", pools=load_pools()))
        assert len([cell for cell in on_gpu if not cell.reference]) <= 8
        references = [cell.parameters["precision"] for cell in on_gpu if cell.reference]
        assert references == (["fp32"] * 4 if name == "bert_inference" else []), "one for each length and batch, for its CUDA graphs"
        assert {cell.pool for cell in expand(load_suite(name, profile="smoke", pools=load_pools()))} == {"cpu"}
