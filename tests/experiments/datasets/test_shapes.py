"""The synthetic labelled images: the same whenever they are drawn, every class there, and nothing but the shape tells of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments.datasets import shapes


def test_the_files_are_a_function_of_the_arguments(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shapes.build(tmp_path / name, rows=40, validation_rows=8, seed=0)
    for split, rows in (("train", 40), ("validation", 8)):
        one, two = (pq.read_table(tmp_path / name / f"{split}.parquet") for name in ("one", "two"))
        assert one.equals(two) and (one.num_rows, one.schema.names) == (rows, ["image", "label"])
    image, label = shapes.image(0, "train", 3)
    row = pq.read_table(tmp_path / "one" / "train.parquet").to_pylist()[3]
    assert (row["image"]["bytes"], row["label"]) == (image, label)
    assert shapes.image(0, "validation", 3) != (image, label) != shapes.image(1, "train", 3)


def test_a_row_shows_its_class_in_any_colour() -> None:
    labels = Counter(shapes.image(0, "train", row)[1] for row in range(300))
    assert sorted(labels) == list(range(shapes.CLASSES)) and min(labels.values()) > 30


def test_the_fingerprint_is_of_every_argument() -> None:
    base = {"rows": 8, "validation_rows": 4, "seed": 0}
    seen = {shapes.fingerprint(**{**base, **change}) for change in ({}, {"rows": 9}, {"validation_rows": 5}, {"seed": 1})}
    assert len(seen) == 4 and shapes.fingerprint(**base) in seen


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot generate 0 \\+ 4 labelled images"):
        shapes.build(tmp_path, rows=0, validation_rows=4, seed=0)
