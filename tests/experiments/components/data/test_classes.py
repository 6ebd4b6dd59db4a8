"""Images with classes: what batches hold, how corrupt rows are replaced, and what evaluation tells."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from experiments.components.data.classes import Classes, ClassParameters
from experiments.components.data.parquet import BatchIndices
from experiments.components.workload import Context, DataError
from experiments.datasets import shapes
from experiments.trial import DataSource
from experiments.workloads import vit
from tests.own_data_support import pairs, parquet


def source(folder: Path) -> DataSource:
    return DataSource(uri=str(folder), fingerprint="f")


def data(folder: Path, labels: list[int | None], **parameters: Any) -> Classes:
    table = pairs(len(labels)).append_column("label", pa.array(labels, pa.int64()))
    parquet(folder, train=table, validation=table)
    return Classes(Context(ClassParameters(evaluation_batch_size=2, **parameters), source(folder), "cpu", 0, 1, 2))


def test_a_batch_holds_images_and_their_classes(tmp_path: Path) -> None:
    one = data(tmp_path / "d", [2, 0, 1, 0], augment=False)
    assert one.count == 3
    batch = one.dataset(one.train, 8)[BatchIndices((3, 0), (), 5)]
    assert batch["images"].shape == (2, 8, 8, 3) and batch["images"].dtype == torch.uint8
    assert batch["images"][:, 0, 0].tolist() == [[21, 93, 3], [0, 0, 0]] and batch["classes"].tolist() == [0, 2]
    assert [len(each["classes"]) for each in islice(one.batches(one.dataset(one.train, 8), one.train_indices()), 3)] == [2, 2, 2]


def test_a_spare_row_takes_the_place_of_one_that_cannot_be_decoded(tmp_path: Path) -> None:
    one = data(tmp_path / "d", [2, 0, 1, 0])
    real = one.train.read
    one.train.read = lambda row: (b"no image", 1) if row == 1 else real(row)  # type: ignore[method-assign]
    batch = one.dataset(one.train, 8)[BatchIndices((0, 1), (2,), 5)]
    assert batch["classes"].tolist() == [2, 1] and batch["corrupt"][0][:2] == (1, "train.parquet row 1")
    with pytest.raises(DataError, match=r"a batch ran out of readable rows; corrupt: train\.parquet row 1 \(not an image"):
        one.dataset(one.train, 8)[BatchIndices((0, 1), (), 5)]


@pytest.mark.parametrize("labels", [[0, None, 1, 0], [0, -1, 1, 0]])
def test_a_row_without_a_class_is_refused(tmp_path: Path, labels: list[int | None]) -> None:
    with pytest.raises(DataError, match=r"train\.parquet: column 'label' has rows without a class number of at least 0"):
        data(tmp_path / "d", labels)


def test_evaluation_tells_loss_accuracy_and_what_guessing_gives(tmp_path: Path) -> None:
    one = data(tmp_path / "d", [2, 0, 1, 0])
    sure = torch.tensor([[0.0, 0.0, 100.0], [100.0, 0.0, 0.0]])
    found = one.evaluate(lambda batch: sure, 8, lambda batch: batch)
    assert found["accuracy"] == 0.75 and found["chance_loss"] == pytest.approx(math.log(3))
    assert found["loss"] == pytest.approx(100 / 4)


def test_vit_reads_a_data_set_and_refuses_one_of_too_many_classes(tmp_path: Path) -> None:
    shapes.build(tmp_path / "shapes", rows=32, validation_rows=16, seed=0)
    parameters = vit.Parameters(dataset="drawn-classes", batch_size=8)
    one = vit.build(Context(parameters, source(tmp_path / "shapes"), "cpu", 0, 1, 8))
    assert one.epoch_samples == 32
    batch = one.prepare(next(iter(one.batches())))
    assert batch["images"].shape == (8, 3, 32, 32) and batch["images"].abs().max() <= 1
    torch.manual_seed(0)
    model = one.model()
    found = one.evaluate(model, one.prepare)
    assert found["chance_loss"] == pytest.approx(math.log(6)) and set(found) == {"loss", "accuracy", "chance_loss"}
    many = parquet(tmp_path / "many", train=pairs(20).append_column("label", pa.array(range(20))), validation=_labelled(20))
    with pytest.raises(DataError, match=r"^the data set has 20 classes, the model 16: set model$"):
        vit.build(Context(parameters, source(many), "cpu", 0, 1, 8))


def _labelled(rows: int) -> pa.Table:
    return pairs(rows).append_column("label", pa.array([0] * rows))
