"""The set that trials read, made of the user's files: the same rows and bytes, the same split and tokenizer whenever it is made."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from experiments.components.data.classes import ClassParameters
from experiments.components.data.pairs import PairParameters
from experiments.components.data.splits import RowParameters
from experiments.datasets.own import prepare as module
from experiments.datasets.own.inspect import inspect
from experiments.datasets.own.prepare import MADE, fingerprint, held_out, prepare
from experiments.datasets.own.recognise import recognise
from experiments.datasets.own.table import OwnDataError, Table
from tests.own_data_support import captioned, classes, pairs, parquet, picture, save_dict


def make(folder: Path, target: Path, kind: type[RowParameters] = PairParameters, **settings: Any) -> tuple[Table, Any]:
    one = kind(**{"batch_size": 2, "evaluation_batch_size": 2, **settings})
    table = recognise(folder)
    defaults = {name: field.default for name, field in kind.model_fields.items()}
    found = inspect(table, one.needs(), one.model_dump(), defaults)
    assert found.recipe is not None and found.missing == []
    splits = (found.settings.get("train_split", one.train_split), found.settings.get("validation_split", one.validation_split))
    prepare(target, table, found.recipe, splits)
    return table, found.recipe


def rows(folder: Path, split: str) -> list[dict[str, Any]]:
    return list(pq.read_table(folder / f"{split}.parquet").to_pylist())


def test_which_rows_are_held_out_never_changes() -> None:
    assert sorted(held_out(10, 3)) == [6, 7, 9]
    assert len(held_out(1000, 125)) == 125 and held_out(5, 0) == frozenset()


def test_rows_are_cut_off_and_the_rest_stay_in_order(tmp_path: Path) -> None:
    made = tmp_path / "made"
    make(captioned(tmp_path / "d", 150), made)
    cut = held_out(150, 18)
    both = {"validation": sorted(cut), "train": [row for row in range(150) if row not in cut]}
    for split, expected in both.items():
        assert rows(made, split) == [
            {"image": {"bytes": picture(row), "path": f"{row:03}.png"}, "text": f"picture {row}, of a thing"} for row in expected
        ]
    said = json.loads((made / MADE).read_text())["says"]
    assert said == (
        "made of images with metadata.csv; 18 of 150 rows were cut off for evaluation, drawn with seed 0; "
        "a tokenizer of at most 1024 tokens was trained on its text"
    )


def test_the_same_files_give_the_same_set_to_the_byte(tmp_path: Path) -> None:
    captioned(tmp_path / "d", 60)
    for name in ("one", "two"):
        make(tmp_path / "d", tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert [str(path) for path in files] == [MADE, "tokenizer/tokenizer.json", "train.parquet", "validation.parquet"]
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in files)
    tokenizer = Tokenizer.from_file(str(tmp_path / "one" / "tokenizer" / "tokenizer.json"))
    assert (tokenizer.token_to_id("<s>"), tokenizer.token_to_id("<pad>")) == (0, 1)
    assert tokenizer.decode(tokenizer.encode("picture 7, of a thing").ids).strip() == "picture 7, of a thing"
    assert len(tokenizer.encode("picture").ids) == 3, "a word of every caption is one token, between <s> and </s>"


def test_the_tokenizer_learns_nothing_of_held_out_rows(tmp_path: Path) -> None:
    table, recipe = make(captioned(tmp_path / "d", 40), tmp_path / "made")
    seen = list(module._texts(table, recipe))
    assert len(seen) == 24 and seen == [row["text"] for row in rows(tmp_path / "made", "train")]


def test_parquet_files_that_lack_only_a_tokenizer_are_linked(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pairs(20), validation=pairs(8))
    _, recipe = make(folder, tmp_path / "made")
    assert recipe.linked and (tmp_path / "made" / "train.parquet").samefile(folder / "train.parquet")
    assert (tmp_path / "made" / "tokenizer" / "tokenizer.json").is_file()


def test_where_no_hard_link_can_be_made_a_symbolic_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(module.os, "link", refuse)
    folder = parquet(tmp_path / "d", train=pairs(20), validation=pairs(8))
    make(folder, tmp_path / "made")
    assert (tmp_path / "made" / "train.parquet").readlink() == folder / "train.parquet"


def test_splits_of_other_files_are_written_under_their_names(tmp_path: Path) -> None:
    make(save_dict(tmp_path / "d", train=pairs(20, "picture", "words"), test=pairs(8, "picture", "words")), tmp_path / "made")
    assert [row["words"] for row in rows(tmp_path / "made", "test")] == [f"picture {row}, of a thing" for row in range(8)]
    assert len(rows(tmp_path / "made", "train")) == 20 and list(rows(tmp_path / "made", "train")[0]) == ["picture", "words"]


def test_classes_get_numbers_in_the_order_of_their_names(tmp_path: Path) -> None:
    make(classes(tmp_path / "d", 30, ["eel", "cat", "dog"]), tmp_path / "made", ClassParameters)
    found = rows(tmp_path / "made", "train") + rows(tmp_path / "made", "validation")
    assert {(row["image"]["path"].split("/")[0], row["label"]) for row in found} == {("cat", 0), ("dog", 1), ("eel", 2)}
    assert len(found) == 30 and not (tmp_path / "made" / "tokenizer").exists()


def test_a_set_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 40)
    table, recipe = make(folder, tmp_path / "made")
    (folder / "039.png").unlink()
    with pytest.raises(OwnDataError, match=r"there is no file 039\.png"):
        prepare(tmp_path / "again", table, recipe, ("train", "validation"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "made"]


def test_a_fingerprint_is_of_the_files_and_of_what_is_made_of_them(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 40)
    _, recipe = make(folder, tmp_path / "made")
    same = fingerprint("v", recipe)
    assert same == fingerprint("v", recipe) != fingerprint("w", recipe)
    assert fingerprint("v", dataclasses.replace(recipe, cut=17)) != same
    assert fingerprint("v", dataclasses.replace(recipe, columns=("image",))) != same
