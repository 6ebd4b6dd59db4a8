"""BERT whose head computes the masked tokens alone: the loss that the head over all tokens has, of fewer products, in fixed shapes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from cluster.devices.cpu import Cpu
from cluster.journal.journal import JournalWriter, read_journal
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.components.data.masked_text import most_told, told
from experiments.components.data.masking import IGNORED
from experiments.components.workload import Context
from experiments.datasets import texts
from experiments.parameters import as_reference
from experiments.trial import DataSource
from experiments.workloads import bert, bert_inference
from tests.trial_support import cpu_trial

pytestmark = pytest.mark.usefixtures("one_thread")

GIVEN: dict[str, Any] = {"batch_size": 4, "seed": 7, "sequence_length": 96, "evaluation_batch_size": 4, "evaluation_samples": 8}
DRAWN: dict[str, Any] = {"lengths": "drawn", "padding": "removed", "attention": "sdpa"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=32, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def build(data: DataSource, **values: Any) -> Any:
    parameters = bert.Parameters(**{**GIVEN, **values})
    return bert.build(Context(parameters, data, "cpu", 0, 1, GIVEN["batch_size"]))


def test_places_and_labels_are_those_of_the_tokens_to_be_told() -> None:
    labels = torch.full((2, 5), IGNORED)
    labels[0, 3], labels[1, 0], labels[1, 4] = 7, 8, 9
    found = told(labels, 4)
    assert found["predicted"].tolist() == [3, 5, 9, 0] and found["labels"].tolist() == [7, 8, 9, IGNORED]
    assert told(labels, 3)["predicted"].tolist() == [3, 5, 9]
    assert told(labels)["predicted"].shape == told(labels)["labels"].shape == (64,) and told(labels)["labels"][:4].tolist() == [
        7,
        8,
        9,
        -100,
    ]
    with pytest.raises(ValueError, match="3 labels are more than 2"):
        told(labels, 2)


@pytest.mark.parametrize(("length", "tokens"), [(1, 1), (3, 1), (10, 2), (24, 4), (190, 29), (512, 77)])
def test_of_a_row_at_most_15_percent_are_told(length: int, tokens: int) -> None:
    assert most_told(length) == tokens


@pytest.mark.parametrize("values", [{}, {"lengths": "drawn"}])
def test_with_padding_every_batch_has_the_same_shapes(data: DataSource, values: dict[str, Any]) -> None:
    one, whole = build(data, prediction="masked", **values), build(data, **values)
    for batch, other in islice(zip(one.batches(), whole.batches(), strict=False), 3):
        assert batch["predicted"].shape == batch["labels"].shape == (4 * 14,)
        labels = other["labels"].flatten()
        real = batch["labels"] != IGNORED
        assert torch.equal(batch["labels"][real], labels[labels != IGNORED])
        assert torch.equal(labels[batch["predicted"][real]], batch["labels"][real]) and not batch["predicted"][~real].any()
        assert torch.equal(batch["input_ids"], other["input_ids"])
        assert bool(real.all()) is (values == {})


def test_without_padding_they_are_rounded_up_and_counted(data: DataSource) -> None:
    one = build(data, prediction="masked", **DRAWN)
    assert one.flops_per_sample() is None
    batches = list(islice(one.batches(), 3))
    assert all(len(batch["predicted"]) % 64 == 0 for batch in batches)
    predicted = sum(len(batch["predicted"]) for batch in batches) / 12
    lengths = [batch["starts"].diff() for batch in batches]
    computed, pairs = (sum(int((each**power).sum()) for each in lengths) / 12 for power in (1, 2))
    assert one.flops_per_sample() == pytest.approx(bert.flops("tiny", computed, pairs, predicted))
    whole = build(data, **DRAWN)
    for _ in islice(whole.batches(), 3):
        pass
    left_out = whole.flops_per_sample() - one.flops_per_sample()
    assert left_out == pytest.approx(6 * (computed - predicted) * (64 * 64 + 64 * 4096))
    assert one.linear_flops_per_sample() == whole.linear_flops_per_sample()


def test_flops_of_the_head_are_those_of_the_tokens_that_it_computes(data: DataSource) -> None:
    one, whole = build(data, prediction="masked"), build(data)
    assert whole.flops_per_sample() - one.flops_per_sample() == pytest.approx(6 * (96 - 14) * (64 * 64 + 64 * 4096))
    assert bert.flops("large", 512) == pytest.approx(6 * (512 * (24 * 12 * 1024**2 + 1024**2 + 1024 * 32_000) + 24 * 2 * 512**2 * 1024))


def losses(data: DataSource, folder: Path, **values: Any) -> list[float]:
    """Of each step of a trial, warm-up included."""
    given = {**GIVEN, "steps": 3, "warmup_steps": 1, "threads": 1, "learning_rate": 1e-3, **values}
    trial = cpu_trial("bert", bert.Parameters(**given).model_dump(mode="json"), data)
    folder.mkdir()
    with Recorder(JournalWriter(folder / "journal.jsonl", 1)) as recorder:
        TrialSession(trial, Ranks(), recorder, folder).run()
    return [step["loss"] for step in read_journal(folder / "journal.jsonl").steps]


@pytest.mark.parametrize(
    ("values", "rel"),
    [
        ({}, 1e-5),
        ({**DRAWN, "accumulation_steps": 2}, 1e-5),
        ({**DRAWN, "precision": "bf16"}, 3e-3),
        ({**DRAWN, "precision": "fp8_simulated"}, 3e-3),
        ({"activation_checkpointing": "selective"}, 1e-5),
    ],
)
def test_a_trial_learns_what_it_does_with_the_whole_head(data: DataSource, tmp_path: Path, values: dict[str, Any], rel: float) -> None:
    found = {prediction: losses(data, tmp_path / prediction, prediction=prediction, **values) for prediction in ("all", "masked")}
    assert len(found["all"]) == 4 and found["masked"] == pytest.approx(found["all"], rel=rel)


def test_compiled_whole_it_learns_the_same_with_one_graph_for_all_batches(
    data: DataSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dynamo's graph, run as it is: no C++ compiler is called. Samples of various lengths, and so various numbers of tokens to be told."""
    monkeypatch.setattr(Cpu, "compile_backend", "eager")
    expected = losses(data, tmp_path / "eager", lengths="drawn", evaluate=False)
    torch.compiler.reset()
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    found = losses(data, tmp_path / "compiled", lengths="drawn", prediction="masked", compile="model", evaluate=False)
    graphs, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    torch.compiler.reset()
    assert found == pytest.approx(expected, rel=1e-5) and (graphs, breaks) == (1, 0)


def test_the_reference_computes_the_whole_head_and_inference_has_none_to_leave_out() -> None:
    ours = bert.Parameters(**GIVEN, prediction="masked").model_dump()
    assert bert.Parameters(**as_reference(ours)).prediction == "all"
    with pytest.raises(ValidationError, match="prediction has no effect: nothing is trained here; leave it at all"):
        bert_inference.Parameters(**GIVEN, prediction="masked")
