"""Both splits of a data set: which rows are evaluated, where the tokenizer comes from, and corrupt rows that are held out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models

from experiments.components.data.parquet import BatchIndices
from experiments.components.data.splits import SplitParameters, Splits
from experiments.components.workload import Context, DataError
from experiments.trial import DataSource


def splits(
    folder: Path, *, held_out: int = 10, data_tokenizer: Path | None = None, notes: list[str] | None = None, **parameters: Any
) -> Splits:
    for split, count in (("train", 20), ("validation", held_out)):
        pq.write_table(pa.table({"a": [f"{split} {row}" for row in range(count)]}), folder / f"{split}.parquet")
    data = DataSource(uri=str(folder), fingerprint="f", tokenizer=str(data_tokenizer) if data_tokenizer else None)
    note = notes.append if notes is not None else (lambda text: None)
    return Splits(Context(SplitParameters(**parameters), data, "cpu", 0, 1, 4, note), ("a", "a"))


def save_tokenizer(folder: Path, word: str) -> Path:
    folder.mkdir()
    Tokenizer(models.WordLevel({word: 0}, unk_token=word)).save(str(folder / "tokenizer.json"))
    return folder


def test_only_whole_batches_of_the_held_out_rows_are_evaluated(tmp_path: Path) -> None:
    found = list(splits(tmp_path, evaluation_batch_size=4).held_out_indices())
    assert found == [BatchIndices((0, 1, 2, 3), (6, 7, 8, 9), 0), BatchIndices((4, 5, 6, 7), (6, 7, 8, 9), 0)]
    assert len(list(splits(tmp_path, evaluation_batch_size=4, evaluation_samples=7).held_out_indices())) == 1
    assert len(list(splits(tmp_path, evaluation_batch_size=10).held_out_indices())) == 1
    with pytest.raises(DataError, match=r"^10 held-out rows are fewer than one evaluation batch of 11$"):
        list(splits(tmp_path, evaluation_batch_size=11).held_out_indices())


def test_spare_rows_are_rows_of_the_split_however_small_it_is(tmp_path: Path) -> None:
    assert next(splits(tmp_path, held_out=2, evaluation_batch_size=2).held_out_indices()).spare == (0, 1)


def test_corrupt_held_out_rows_are_noted_once_and_counted_apart_from_training_rows(tmp_path: Path) -> None:
    notes: list[str] = []
    one = splits(tmp_path, notes=notes, evaluation_batch_size=5)

    class Items:
        def __getitem__(self, indices: BatchIndices) -> dict[str, Any]:
            return {"rows": indices.rows, "corrupt": [(indices.rows[0], f"row {indices.rows[0]}", "no text")]}

    for _ in range(2):
        assert list(one.held_out_batches(Items())) == [{"rows": (0, 1, 2, 3, 4)}, {"rows": (5, 6, 7, 8, 9)}]
    assert len(notes) == 2 and notes[1].startswith("corrupt row skipped: row 5: no text (2 so far; 3 of 10 are allowed)")
    assert (len(one.corrupt_held_out), len(one.corrupt)) == (2, 0)


def test_the_tokenizer_is_the_parameters_then_the_data_sets_then_the_weights_own(tmp_path: Path) -> None:
    own, data, weights = (save_tokenizer(tmp_path / name, name) for name in ("own", "data", "weights"))
    chosen = splits(tmp_path, tokenizer=str(own), data_tokenizer=data).tokenizer(str(weights))
    assert (chosen.token_to_id("own"), chosen.token_to_id("data")) == (0, None)
    assert splits(tmp_path, data_tokenizer=data).tokenizer(str(weights)).token_to_id("data") == 0
    assert splits(tmp_path).tokenizer(str(weights)).token_to_id("weights") == 0
    with pytest.raises(DataError, match=r"^no tokenizer\.json in the data set: set tokenizer$"):
        splits(tmp_path).tokenizer()
    empty = tmp_path / "empty"
    with pytest.raises(DataError, match=rf"^no tokenizer\.json in {empty}: set tokenizer$"):
        splits(tmp_path, data_tokenizer=empty).tokenizer()


def test_rows_that_do_not_fill_a_batch_are_refused_instead_of_copied(tmp_path: Path) -> None:
    one = splits(tmp_path)
    assert len(next(one.train_indices()).rows) == 4
    one.context = dataclasses.replace(one.context, batch_size=10, world_size=2)
    assert len(next(one.train_indices()).rows) == 10, "20 rows are a batch of 20"
    one.context = dataclasses.replace(one.context, batch_size=11)
    message = r"^train\.parquet: 20 rows are fewer than one batch of 22 \(batch_size 11 on 2 devices\), .* batch_size 10 at most$"
    with pytest.raises(DataError, match=message):
        one.train_indices()
