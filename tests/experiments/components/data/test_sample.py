"""A look at the first images of a split: which of them no trial could decode."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from experiments.components.data.sample import Sample, look_at_images
from experiments.datasets.own.recognise import recognise
from experiments.datasets.own.table import Part
from tests.own_data_support import parquet, picture


def part(folder: Path, values: list[dict[str, object]]) -> Part:
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return recognise(parquet(folder, train=pa.table({"image": pa.array(values, struct)}))).parts["train"]


def test_each_image_that_cannot_be_decoded_is_named_with_its_reason(tmp_path: Path) -> None:
    good, cut = picture(1, 64), picture(2, 64)[:-30]
    values = [
        {"bytes": good, "path": "a.png"},
        {"bytes": cut, "path": "b.png"},
        {"bytes": None, "path": "c.png"},
        {"bytes": b"%!PS-Adobe", "path": None},
        {"bytes": None, "path": None},
    ]
    found = look_at_images(part(tmp_path, values), "image", 10)
    assert found.looked == 5
    cannot, named, strange, nothing = found.broken
    assert cannot.startswith("b.png: cannot be decoded: ")
    assert named == "c.png: only the name of the image is here, not the image"
    assert strange == "row 3: not an image in JPEG, PNG, WEBP, GIF, BMP" and nothing == "row 4: no image bytes"


def test_only_the_first_rows_are_looked_at(tmp_path: Path) -> None:
    found = look_at_images(part(tmp_path, [{"bytes": b"x", "path": None}] * 300), "image", 140)
    assert (found.looked, len(found.broken)) == (140, 140)


@pytest.mark.parametrize(
    ("looked", "rows", "broken", "too_many"),
    [
        (16, 60, 3, False),
        (16, 60, 4, True),  # more than three
        (16, 499, 5, True),
        (16, 500, 5, False),  # 1 % of all rows
        (16, 500, 6, True),
        (16, 10_000, 8, False),  # half of those that were looked at
        (16, 10_000, 9, True),
        (3, 3, 2, True),
    ],
)
def test_as_many_are_too_many_as_end_a_trial(looked: int, rows: int, broken: int, too_many: bool) -> None:
    assert Sample(looked, rows, ("x",) * broken).too_many is too_many
