"""BERT on samples of various lengths: without padding it learns and infers what it does with it, and computes less."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from cluster.journal.journal import JournalWriter, read_journal
from cluster.pools.pool import load_pools
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.components.data.masked_text import most_told_of
from experiments.components.data.masking import told_of
from experiments.components.data.unpadding import MULTIPLE
from experiments.components.workload import Context, Unsupported
from experiments.datasets import texts
from experiments.parameters import as_reference
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.summary import summarise
from experiments.trial import DataSource
from experiments.workloads import bert, bert_inference
from tests.trial_support import cpu_trial

pytestmark = pytest.mark.usefixtures("one_thread")

VARIOUS: dict[str, Any] = {"batch_size": 4, "seed": 7, "sequence_length": 96, "lengths": "drawn"} | {
    "evaluation_batch_size": 4,
    "evaluation_samples": 8,
}
WAYS = [("kept", "eager"), ("kept", "sdpa"), ("removed", "eager"), ("removed", "sdpa")]
WITH_HEADS = [(*way, prediction) for prediction in ("all", "masked") for way in WAYS]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=32, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def build(data: DataSource, module: Any = bert, *, device: str = "cpu", **values: Any) -> Any:
    parameters = module.Parameters(**{**VARIOUS, **values})
    return module.build(Context(parameters, data, device, 0, 1, parameters.batch_size))


def made(one: Any) -> Any:
    torch.manual_seed(0)
    return one.model().double()


def test_without_padding_it_learns_the_same_as_with_it(data: DataSource) -> None:
    """In float64: loss, gradients and held-out loss of the padded batch in plain attention and with the head over all tokens, and of all
    other ways to compute them."""
    found = []
    for padding, attention, prediction in WITH_HEADS:
        one = build(data, padding=padding, attention=attention, prediction=prediction)
        model, batch = made(one), next(one.batches())
        assert ("predicted" in batch) is (prediction == "masked")
        assert ("starts" in batch) is (padding == "removed") and one.samples(batch) == 4
        loss = one.loss(model, one.prepare(batch))
        loss.backward()
        gradients = torch.cat([weight.grad.flatten() for weight in model.parameters()])
        model.eval()
        with torch.no_grad():
            found.append((loss.item(), gradients, one.evaluate(model, one.prepare)["loss"]))
    expected, gradients, held_out = found[0]
    assert expected == pytest.approx(8.3, abs=0.2)
    for loss, others, after in found[1:]:
        assert loss == pytest.approx(expected, rel=1e-12) and after == pytest.approx(held_out, rel=1e-12)
        assert float((others - gradients).norm() / gradients.norm()) < 1e-10


def test_inference_reads_the_same_and_reports_the_first_tokens(data: DataSource) -> None:
    read = []
    for padding, attention in WAYS:
        one = build(data, bert_inference, padding=padding, attention=attention)
        model = made(one)
        with torch.inference_mode():
            read.append([float(one.loss(model, one.prepare(batch))) for batch in islice(one.batches(), 2)])
    for other in read[1:]:
        assert other == pytest.approx(read[0], rel=1e-5)  # scores are read in fp32
    assert read[0][0] != pytest.approx(read[0][1], rel=1e-3)


def test_a_sample_does_not_depend_on_those_beside_it(data: DataSource) -> None:
    one = build(data, padding="removed", attention="sdpa")
    model, batch = made(one).eval(), next(one.batches())
    with torch.no_grad():
        scores = model(**one.inputs(model, batch)).logits
        begin, end = batch["starts"][1:3].tolist()
        other = {**batch, "input_ids": batch["input_ids"].clone()}
        other["input_ids"][0, :begin] = 7
        changed = model(**one.inputs(model, other)).logits
    assert torch.equal(scores[:, begin:end], changed[:, begin:end]) and not torch.equal(scores[:, :begin], changed[:, :begin])


def test_lengths_are_drawn_and_texts_begin_where_full_ones_do(data: DataSource) -> None:
    one, full = build(data), build(data, lengths="full")
    batch, filled = next(one.batches()), next(full.batches())
    assert "real" not in filled and filled["input_ids"].shape == batch["input_ids"].shape == (4, 96)
    real = batch["real"]
    lengths = real.sum(dim=1).tolist()
    assert len(set(lengths)) > 1 and max(lengths) <= 96
    assert (batch["labels"][~real] == -100).all() and (batch["input_ids"][~real] == one.splits.tokenizer().token_to_id("<pad>")).all()
    told = (batch["labels"] != -100).sum(dim=1).tolist()
    assert told == [max(1, round(0.15 * length)) for length in lengths]
    original = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
    whole = torch.where(filled["labels"] == -100, filled["input_ids"], filled["labels"])
    assert torch.equal(original[real], whole[real]), "the same texts, cut"
    again = next(build(data).batches())
    assert torch.equal(again["input_ids"], batch["input_ids"])


def test_rows_of_yours_keep_their_own_lengths(tmp_path: Path, data: DataSource) -> None:
    rows = ["ba bi bo", "ba " * 30, "bo"] * 6
    for split in ("train", "validation"):
        pq.write_table(pa.table({"text": rows}), tmp_path / f"{split}.parquet")
    yours = DataSource(uri=str(tmp_path), fingerprint="g", tokenizer=data.tokenizer)
    one = build(yours, lengths="own", padding="removed", attention="sdpa", sequence_length=16, batch_size=18)
    batch, tokenizer = next(one.batches()), one.splits.tokenizer()
    wanted = sorted(min(16, len(tokenizer.encode(text).ids)) for text in rows)
    assert sorted(batch["starts"].diff().tolist()[:-1]) == wanted and 16 in wanted and wanted[0] < 5


def test_flops_and_tokens_are_those_that_are_computed(data: DataSource) -> None:
    one, kept, full = build(data, padding="removed", attention="sdpa"), build(data), build(data, lengths="full")
    assert one.flops_per_sample() is one.tokens_per_sample is kept.tokens_per_sample is None, "before the first batch"
    assert kept.flops_per_sample() == full.flops_per_sample() == bert.flops("tiny", 96)
    assert full.tokens_per_sample == 96
    lengths, computed, pairs = [], 0, 0
    for batch in islice(one.batches(), 3):
        documents = batch["starts"].diff().tolist()
        assert batch["input_ids"].shape[1] == sum(documents) and sum(documents) % 64 == 0 and documents[-1] < 64
        lengths += documents[:-1]
        computed += sum(documents)
        pairs += sum(length * length for length in documents)
    for _ in islice(kept.batches(), 3):
        pass
    assert one.tokens_per_sample == kept.tokens_per_sample == pytest.approx(sum(lengths) / 12)
    assert one.flops_per_sample() == pytest.approx(bert.flops("tiny", computed / 12, pairs / 12))
    assert one.linear_flops_per_sample() == pytest.approx(bert.linear_flops("tiny", computed / 12))
    assert sum(lengths) < computed < 12 * 96 and one.flops_per_sample() < kept.flops_per_sample()
    inferring = build(data, bert_inference, padding="removed", attention="sdpa")
    assert inferring.flops_per_sample() is None
    next(inferring.batches())
    first = build(data, padding="removed", attention="sdpa")
    next(first.batches())
    assert inferring.flops_per_sample() == pytest.approx(first.flops_per_sample() / 3)


@pytest.mark.parametrize("prediction", ["all", "masked"])
def test_one_document_costs_what_torch_counts(data: DataSource, prediction: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    one = build(data, padding="removed", attention="eager", lengths="own", sequence_length=64, batch_size=1, prediction=prediction)
    model, batch = one.model(), next(one.batches())
    assert batch["starts"].tolist() == [0, 64, 64]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        one.loss(model, batch)
    assert one.flops_per_sample() == pytest.approx(3 * counter.get_total_flops(), rel=0.001)


def test_a_trial_of_micro_batches_counts_all_samples_and_real_tokens(data: DataSource, tmp_path: Path) -> None:
    given = {**VARIOUS, "padding": "removed", "attention": "sdpa", "accumulation_steps": 3, "steps": 4, "warmup_steps": 2, "threads": 1}
    parameters = bert.Parameters(**given).model_dump(mode="json")
    trial = cpu_trial("bert", parameters, data)
    with Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        TrialSession(trial, Ranks(), recorder, tmp_path).run()
    journal = read_journal(tmp_path / "journal.jsonl")
    assert [step["samples"] for step in journal.steps] == [12] * 6 and journal.window
    real = [batch["starts"][-2].item() for batch in islice(build(data, padding="removed", attention="sdpa").batches(), 6 * 3)]
    assert journal.window["tokens_per_sample"] == pytest.approx(sum(real) / (6 * 12))
    summary = summarise(journal.steps, journal.window)
    assert summary["samples"] == 4 * 12 and summary["batch_size"] == 4
    assert summary["tokens_per_s"] == pytest.approx(float(summary["throughput"] or 0) * sum(real) / (6 * 12))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"lengths": "full", "padding": "removed"}, "padding removed has no effect with lengths full"),
        ({"attention": "varlen"}, "set padding to removed, or attention to sdpa"),
        ({"attention": "varlen", "padding": "removed", "model": "base"}, "has no dropout, and dropout is 0.1; set dropout to 0"),
        ({"attention": "varlen", "padding": "removed", "dropout": 0.2}, "dropout is 0.2"),
        ({"lengths": "short"}, "lengths"),
        (
            {"padding": "removed", "compile": "model", "compile_mode": "reduce-overhead"},
            "compile_mode reduce-overhead: with padding removed",
        ),
        ({"padding": "removed", "compile": "layer", "compile_mode": "max-autotune"}, "compile_mode max-autotune: with padding removed"),
        ({"padding": "removed", "cuda_graph": True}, "cuda_graph: with padding removed each number of tokens is a graph"),
        ({"padding": "kept", "round_tokens_to": 128}, "round_tokens_to 128 has no effect with padding kept; set padding to removed"),
        ({"padding": "removed", "round_tokens_to": 72}, "round_tokens_to"),
        ({"padding": "removed", "round_tokens_to": 48}, "round_tokens_to"),
        (
            {"padding": "removed", "round_tokens_to": 512, "cuda_graph": True, "accumulation_steps": 2},
            "accumulation_steps 2 each choice of their numbers of tokens is a graph",
        ),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        bert.Parameters(**{**VARIOUS, **values})


def test_without_cuda_graphs_samples_without_padding_are_compiled() -> None:
    for mode in ("default", "max-autotune-no-cudagraphs"):
        bert.Parameters(**{**VARIOUS, "padding": "removed", "compile": "model", "compile_mode": mode})
    bert.Parameters(**{**VARIOUS, "padding": "kept", "compile": "model", "compile_mode": "reduce-overhead"})


@pytest.mark.parametrize(("sequence_length", "longest"), [(96, 96), (16, 64)])
def test_varlen_is_told_a_length_that_the_padding_does_not_exceed(data: DataSource, sequence_length: int, longest: int) -> None:
    """Up to 63 tokens of padding are a document too."""
    varlen = {"padding": "removed", "attention": "varlen", "precision": "bf16", "sequence_length": sequence_length}
    one = build(data, device="cuda", **varlen)
    batch = next(one.batches())
    given = one.inputs(torch.nn.Linear(1, 1), batch)
    assert given["longest"] == longest >= batch["starts"].diff().max() and torch.equal(given["starts"], batch["starts"])
    assert "attention_mask" not in given


@pytest.mark.parametrize("prediction", ["all", "masked"])
def test_rounded_batches_learn_the_same_and_have_few_shapes(data: DataSource, prediction: str) -> None:
    """In float64. Shapes follow from the rounded number of tokens: the documents of padding and what the head computes too."""
    found: list[list[float]] = []
    shapes: dict[int, set[tuple[Any, ...]]] = {}
    for multiple in (64, 160):  # 160 tokens are more than one document of 96 holds, so two are filled up
        one = build(data, padding="removed", attention="sdpa", prediction=prediction, round_tokens_to=multiple)
        model, each = made(one), []
        for batch in islice(one.batches(), 6):
            assert one.samples(batch) == 4 and batch["input_ids"].shape[1] % multiple == 0
            loss = one.loss(model, batch)
            loss.backward()
            each.append(loss.item())
            if multiple == 160:
                tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
                shapes.setdefault(batch["input_ids"].shape[1], set()).add(tuple((name, *tensors[name].shape) for name in sorted(tensors)))
        found.append([*each, model.bert.embeddings.word_embeddings.weight.grad.norm().item()])
    assert found[1] == pytest.approx(found[0], rel=1e-9)
    assert len(shapes) > 1 and {len(of) for of in shapes.values()} == {1}, "one for each number of tokens"


def test_what_a_rounded_batch_computes_is_counted_and_its_held_out_loss_is_the_same(data: DataSource) -> None:
    held_out = []
    for multiple in (64, 160):
        one = build(data, padding="removed", attention="sdpa", prediction="masked", round_tokens_to=multiple)
        batch = one._masked(one.splits.train)[next(iter(one.splits.train_indices()))]
        ends, counts = batch["starts"].diff().tolist(), batch["counts"]
        real, filled = ends[:4], ends[4:]
        assert len(filled) == (1 if multiple == 64 else 2) and max(filled) <= 96
        assert (counts["samples"], counts["tokens"], counts["computed"]) == (4, sum(real), batch["input_ids"].shape[1])
        assert counts["pairs"] == sum(length**2 for length in ends) and counts["predicted"] == batch["labels"].numel()
        held_out.append(one.evaluate(made(one), lambda batch: batch)["loss"])
    assert held_out[1] == pytest.approx(held_out[0], rel=1e-9)


def test_what_the_head_computes_of_a_rounded_batch_is_enough_for_any_lengths() -> None:
    for lengths in ([1] * 64, [3] * 64, [4] * 64, [512] * 64, [7, 10, 17, 512], [1]):
        asked = int(told_of(torch.tensor(lengths)).sum())
        assert asked <= most_told_of(sum(lengths), len(lengths)) and most_told_of(sum(lengths), len(lengths)) % MULTIPLE == 0
    assert most_told_of(2048, 8) == 320 == 5 * 64, "a bound of 315.2"
    assert most_told_of(2048, 12) == 320, "of 319.2"
    assert most_told_of(2048, 13) == 384, "of 320.2"


def test_the_first_tokens_of_samples_alone_are_read_in_inference(data: DataSource) -> None:
    ways = [build(data, bert_inference, padding="removed", attention="sdpa", round_tokens_to=multiple) for multiple in (64, 160)]
    scores = []
    for one in ways:
        model = made(one)
        scores.append([one.loss(model, batch).item() for batch in islice(one.batches(), 3)])
    assert scores[1] == pytest.approx(scores[0], rel=1e-6)


def test_a_reference_keeps_the_padding_whatever_a_cell_rounds_to() -> None:
    ours = bert.Parameters(**VARIOUS, padding="removed", attention="varlen", precision="bf16", round_tokens_to=2048, cuda_graph=True)
    reference = bert.Parameters(**as_reference(ours.model_dump()))
    assert (reference.padding, reference.round_tokens_to) == ("kept", MULTIPLE)


def test_what_a_device_cannot_do_is_unsupported(data: DataSource) -> None:
    varlen = {"padding": "removed", "attention": "varlen", "precision": "bf16"}
    assert bert_inference.Parameters(**{**VARIOUS, **varlen, "model": "base"}).dropped() == 0
    with pytest.raises(Unsupported, match="attention varlen: only on cuda, and this is cpu"):
        build(data, **varlen)
    with pytest.raises(Unsupported, match="padding removed: not with hpu_graphs"):
        build(data, device="hpu", padding="removed", attention="sdpa", hpu_graphs=True)
    assert build(data, device="hpu", padding="kept", hpu_graphs=True).parameters.hpu_graphs
    with pytest.raises(ValidationError, match="accumulation_steps has no effect: nothing is trained here"):
        bert_inference.Parameters(accumulation_steps=2)


def test_the_reference_keeps_the_padding_and_needs_no_16_bits() -> None:
    ours = bert.Parameters(**VARIOUS, padding="removed", attention="varlen", precision="bf16").model_dump()
    reference = bert.Parameters(**as_reference(ours))
    assert (reference.padding, reference.attention, reference.precision, reference.lengths) == ("kept", "sdpa", "fp32", "drawn")


def test_the_suites_compare_padding_on_the_same_samples() -> None:
    for name, count in (("bert", 4), ("bert_inference", 4)):
        cells = expand(load_suite(name, profile="unpadded", pools=load_pools()))
        assert len(cells) == count and {(cell.parameters["padding"], cell.parameters["attention"]) for cell in cells} == {
            ("kept", "sdpa"),
            ("removed", "varlen"),
        }
        assert {cell.parameters["lengths"] for cell in cells} == {"drawn"}
        assert {cell.parameters["batch_size"] * cell.parameters["accumulation_steps"] for cell in cells} <= {8, 64}
