"""What a workload finds in the user's own data: each thing that can be missing, each guess, and what is to be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from experiments.components.data.classes import ClassParameters
from experiments.components.data.pairs import VOCABULARY, PairParameters
from experiments.components.data.splits import RowParameters
from experiments.components.data.text import TextParameters
from experiments.datasets.own.findings import Inspection
from experiments.datasets.own.inspect import inspect
from experiments.datasets.own.needs import Needs
from experiments.datasets.own.recognise import recognise
from experiments.workloads import t5, vit
from tests.own_data_support import captioned, classes, pairs, parquet, save_dict


def look(folder: Path, kind: type[RowParameters] = PairParameters, needs: Needs | None = None, **settings: Any) -> Inspection:
    one = kind(**{"batch_size": 4, "evaluation_batch_size": 4, **settings})
    parameters = one.model_dump()
    defaults = {name: field.default for name, field in kind.model_fields.items()}
    table = recognise(folder, (parameters["train_split"], parameters["validation_split"]))
    return inspect(table, needs or one.needs(), parameters, defaults)


def lines(found: Inspection, state: str) -> list[str]:
    return [str(finding) for finding in found.findings if finding.state == state]


def test_a_set_that_has_everything_is_read_as_it_is(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pairs(8), validation=pairs(4))
    (folder / "tokenizer.json").write_text("{}")
    found = look(folder, tokenizer=str(folder))
    assert lines(found, "found") == [
        "training rows: 8 rows of the split train",
        "held-out rows: 4 rows of the split validation",
        "image column: image",
        "caption column: image_description",
        f"tokenizer: {folder}",
    ]
    assert (len(found.findings), found.recipe, found.settings, found.missing) == (5, None, {}, [])
    assert (found.used, found.columns) == (["train", "validation"], {"image_column": "image", "caption_column": "image_description"})


def test_everything_that_is_missing_is_listed_at_once(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pa.table({"a": ["x"] * 3, "b": ["y"] * 3}), validation=pa.table({"a": ["x"] * 2}))
    found = look(folder, batch_size=2, devices=2, tokenizer=str(tmp_path / "none"), evaluation_samples=3)
    assert lines(found, "missing") == [
        "image column: there is no column 'image'; columns: a, b (--set image_column=NAME, of a column that holds this)",
        "caption column: there is no column 'image_description'; columns: a, b (--set caption_column=a or b)",
        "training rows: 3 are fewer than a batch of 2 on 2 devices; give more rows (--set batch_size=1)",
        "held-out rows: 2 are fewer than one evaluation batch of 4; give more rows (--set evaluation_batch_size=2)",
        "held-out rows: evaluation_samples 3 are fewer than one evaluation batch of 4 (--set evaluation_samples=4)",
        f"tokenizer: {tmp_path}/none has no tokenizer.json (--set tokenizer=FOLDER, or leave it out)",
    ]
    assert found.recipe is None


# --- splits


@pytest.mark.parametrize(("there", "taken"), [("valid", "valid"), ("test", "test"), ("dev", "dev"), ("val", "val")])
def test_a_held_out_split_of_a_usual_name_is_guessed(tmp_path: Path, there: str, taken: str) -> None:
    found = look(save_dict(tmp_path / "d", train=pairs(8), **{there: pairs(5)}))
    assert f"held-out rows: the split {taken}, of 5 rows (--set validation_split={taken})" in lines(found, "guessed")
    assert found.settings == {"validation_split": taken} and found.recipe is not None
    assert (found.recipe.validation, found.recipe.cut) == (taken, 0)


def test_of_two_usual_names_the_first_is_taken(tmp_path: Path) -> None:
    found = look(save_dict(tmp_path / "d", training=pairs(8), test=pairs(5), val=pairs(4)))
    assert found.settings == {"train_split": "training", "validation_split": "val"}


@pytest.mark.parametrize(("rows", "cut"), [(9, 4), (31, 15), (32, 16), (128, 16), (136, 17), (8192, 1024), (20_000, 1024)])
def test_without_a_held_out_split_rows_are_cut_off(tmp_path: Path, rows: int, cut: int) -> None:
    table = pa.table({"text": ["some text"] * rows})
    found = look(parquet(tmp_path / "d", everything=table), TextParameters)
    assert found.recipe is not None and (found.recipe.train, found.recipe.validation, found.recipe.cut) == ("", None, cut)
    assert f"held-out rows: {cut} of {rows} rows are cut off, always the same; {rows - cut} are left to train on" in lines(found, "made")


def test_a_split_that_was_asked_for_and_is_not_there_is_not_guessed(tmp_path: Path) -> None:
    folder = save_dict(tmp_path / "d", train=pairs(20), test=pairs(5))
    found = look(folder, validation_split="unseen")
    assert lines(found, "missing") == [
        "held-out rows: there is no split 'unseen'; splits: train, test "
        "(--set validation_split=NAME, or leave it out: rows are then cut off)"
    ]
    found = look(folder, train_split="seen")
    assert lines(found, "missing") == ["training rows: there is no split 'seen'; splits: train, test (--set train_split=NAME)"]
    only = look(save_dict(tmp_path / "only", test=pairs(5)))
    assert lines(only, "missing") == ["training rows: there is no split 'train'; splits: test (--set train_split=NAME)"]
    unnamed = look(parquet(tmp_path / "p", a=pairs(40)), train_split="b")
    assert lines(unnamed, "missing") == ["training rows: there is no split 'b'; splits: none (--set train_split=NAME)"]


def test_a_held_out_split_of_other_columns_is_missing_them(tmp_path: Path) -> None:
    found = look(parquet(tmp_path / "d", train=pairs(8), validation=pairs(4, caption="words")))
    assert lines(found, "missing") == ["held-out rows: the split validation has no column 'image_description'; columns: image, words"]


# --- columns


def test_the_only_column_that_could_be_meant_is_guessed(tmp_path: Path) -> None:
    found = look(parquet(tmp_path / "d", train=pairs(8, "picture", "words"), validation=pairs(4, "picture", "words")))
    assert lines(found, "guessed") == [
        "image column: picture, the only column of images (--set image_column=picture)",
        "caption column: words, the only column of texts (--set caption_column=words)",
    ]
    assert found.settings == {"image_column": "picture", "caption_column": "words"}


def test_among_several_only_one_that_is_alike_is_guessed(tmp_path: Path) -> None:
    near = pairs(8, caption="image_descriptions", url=["u"] * 8)
    assert look(parquet(tmp_path / "near", train=near)).settings == {"caption_column": "image_descriptions"}
    far = look(parquet(tmp_path / "far", train=pairs(8, caption="words", url=["u"] * 8)))
    assert lines(far, "missing") == [
        "caption column: there is no column 'image_description'; columns: image, words, url (--set caption_column=words or url)"
    ]


def test_a_column_that_was_asked_for_is_not_guessed_and_one_of_another_type_is_named(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pairs(8, caption="words", stars=[1] * 8))
    asked = look(folder, caption_column="word")
    assert "caption column: there is no column 'word'" in lines(asked, "missing")[0]
    other = look(folder, caption_column="stars")
    assert lines(other, "missing") == [
        "caption column: stars holds int64, wanted text: string, or a list of strings (--set caption_column=words)"
    ]


def test_two_parameters_never_guess_the_same_column(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pa.table({"text": ["x"] * 40, "other": ["y"] * 40}))
    assert look(folder, t5.Parameters).settings == {"summary_column": "other"}
    (folder / "train.parquet").unlink()
    found = look(parquet(folder, train=pa.table({"text": ["x"] * 40})), t5.Parameters)
    assert [finding.what for finding in found.missing] == ["summary column"]


def test_the_name_of_a_class_is_no_caption(tmp_path: Path) -> None:
    found = look(classes(tmp_path / "d", 40))
    assert lines(found, "missing")[0].startswith("caption column: there is no column 'image_description'; columns: image, label")


# --- tokenizers


def test_a_tokenizer_is_trained_unless_there_is_one(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 40)
    found = look(folder)
    assert f"tokenizer: trained on the training rows' text, at most {VOCABULARY} tokens (--set tokenizer=FOLDER takes another)" in lines(
        found, "made"
    )
    assert found.recipe is not None and found.recipe.tokenizer == PairParameters.own_tokenizer and found.recipe.texts == ("text",)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text("{}")
    own = look(folder).recipe
    assert own is not None and (own.tokenizer, own.tokenizer_file) == (None, f"{folder}/tokenizer/tokenizer.json")
    none = look(captioned(tmp_path / "e", 40), needs=Needs(PairParameters.columns))
    assert lines(none, "missing") == [
        "tokenizer: the workload trains none of its own (--set tokenizer=FOLDER, with a tokenizer.json)",
    ]


def test_weights_bring_their_tokenizer(tmp_path: Path) -> None:
    class Weighted(PairParameters):
        weights: str | None = None

    found = look(captioned(tmp_path / "d", 40), Weighted, weights="/some/where")
    assert "tokenizer: that of the weights" in lines(found, "found")
    assert found.recipe is not None and (found.recipe.tokenizer, found.recipe.tokenizer_file) == (None, None)


# --- classes


def test_names_of_classes_are_numbered(tmp_path: Path) -> None:
    found = look(classes(tmp_path / "d", 40), ClassParameters)
    assert "classes: 3: cat, dog, eel" in lines(found, "found")
    assert found.recipe is not None and (found.recipe.classes, found.recipe.label) == (("cat", "dog", "eel"), "label")
    assert found.recipe.tokenizer is None


def test_a_model_tells_so_many_classes_apart_and_no_more(tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(17)]
    full = look(classes(tmp_path / "16", 64, names[:16]), vit.Parameters, dataset=str(tmp_path))
    assert full.missing == []
    found = look(classes(tmp_path / "17", 68, names), vit.Parameters, dataset=str(tmp_path))
    assert lines(found, "missing") == ["classes: 17 are more than the 16 that this model tells apart (--set model=...)"]
    assert look(tmp_path / "17", vit.Parameters, dataset=str(tmp_path), model="b16").missing == []


def labelled(labels: list[object], held_out: list[object]) -> dict[str, pa.Table]:
    return {
        name: pairs(len(values)).append_column("label", pa.array(values)) for name, values in (("train", labels), ("validation", held_out))
    }


@pytest.mark.parametrize(
    ("train", "held_out", "missing"),
    [
        ([0, 1, 2, 2], [1, 1, 2, 0], []),
        ([0, 1, None, 2], [1, 1, 2, 0], ["some rows have no label"]),
        ([0, 1, -1, 2], [1, 1, 2, 0], ["label holds -1, wanted class numbers from 0: integer"]),
        ([0, 1, 2, 2], [1, 1, 2, 3], ["held-out rows have classes that no training row has: 3"]),
        ([0, 0, 0, 0], [0, 0, 0, 0], ["all training rows are of one class, 0: nothing is to be learnt"]),
        ([0, 20, 0, 0], [0, 0, 0, 0], ["21 are more than the 16 that this model tells apart (--set model=...)"]),
        (["a", "b", "a", "b"], ["a", "c", "a", "b"], ["held-out rows have classes that no training row has: c"]),
    ],
)
def test_class_numbers_are_looked_at(tmp_path: Path, train: list[object], held_out: list[object], missing: list[str]) -> None:
    found = look(parquet(tmp_path / "d", **labelled(train, held_out)), vit.Parameters, dataset="d")
    assert [str(finding).removeprefix("classes: ") for finding in found.missing] == missing
    assert found.recipe is None, "integers are read as they are"


def test_held_out_rows_are_counted_only_if_they_are_evaluated(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pairs(8), validation=pairs(1))
    assert [finding.what for finding in look(folder).missing] == ["held-out rows"]
    assert look(folder, evaluate=False).missing == []


def test_the_largest_batch_is_looked_for_by_the_trial(tmp_path: Path) -> None:
    assert look(captioned(tmp_path / "d", 40), batch_size="max").missing == []
