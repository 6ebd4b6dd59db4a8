"""Columns and rows of Parquet files that cannot be what a workload needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.components.data.parquet import CorruptRow, Rows, read_index
from experiments.components.workload import DataError

IMAGE = pa.array([b"jpeg"] * 3, pa.binary())


def rows(folder: Path, image: Any, caption: Any) -> Rows:
    path = folder / "train.parquet"
    pq.write_table(pa.table({"image": image, "caption": caption}), path)
    return Rows(read_index([path], ("image", "caption"), ("image", "text")), "image", "caption")


@pytest.mark.parametrize(
    ("captions", "first"),
    [
        (pa.array(["a", "b", None]), "a"),
        (pa.array(["a", "b", None], pa.large_string()), "a"),
        (pa.array(["a", "b", None]).dictionary_encode(), "a"),
        (pa.array([["a", "b"], [], None]), "a"),
    ],
)
def test_captions_are_text_or_lists_of_it(tmp_path: Path, captions: Any, first: str) -> None:
    found = rows(tmp_path, IMAGE, captions)
    assert (found.read(0), found.read(2)) == ((b"jpeg", first), (b"jpeg", None))


def test_a_row_with_an_empty_list_of_captions_has_none(tmp_path: Path) -> None:
    assert rows(tmp_path, IMAGE, pa.array([["a"], [], ["c"]])).read(1) == (b"jpeg", None)


@pytest.mark.parametrize(
    ("captions", "kind"),
    [
        (pa.array([1, 2, 3]), "int64"),
        (pa.array([b"a"] * 3), "binary"),
        (pa.array([[["a"]]] * 3), r"list<.*list<.*string>>"),
        (pa.array([{"text": "a"}] * 3), r"struct<text: string>"),
    ],
)
def test_captions_of_another_type_are_named_before_anything_runs(tmp_path: Path, captions: Any, kind: str) -> None:
    message = rf"^{tmp_path}/train\.parquet: column 'caption' holds {kind}, wanted text: string, or a list of strings$"
    with pytest.raises(DataError, match=message):
        rows(tmp_path, IMAGE, captions)


@pytest.mark.parametrize(
    ("images", "kind"),
    [
        (pa.array([1, 2, 3]), "int64"),
        (pa.array(["a"] * 3), "string"),
        (pa.array([{"path": "a"}] * 3), "struct<path: string>"),
        (pa.array([{"bytes": "a"}] * 3), "struct<bytes: string>"),
    ],
)
def test_images_of_another_type_are_named_before_anything_runs(tmp_path: Path, images: Any, kind: str) -> None:
    with pytest.raises(
        DataError, match=rf"column 'image' holds {kind}, wanted encoded images: binary, or struct\{{bytes: binary, path\}}$"
    ):
        rows(tmp_path, images, pa.array(["a"] * 3))


def test_a_caption_that_is_not_utf_8_is_a_corrupt_row(tmp_path: Path) -> None:
    offsets, data = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 1, 3, 4))), pa.py_buffer(b"a\xff\xfec")
    found = rows(tmp_path, IMAGE, pa.Array.from_buffers(pa.string(), 3, [None, offsets, data]))
    assert found.read(2) == (b"jpeg", "c")
    with pytest.raises(CorruptRow, match=r"^column 'caption' is not UTF-8 text \(invalid start byte at byte 0\)$"):
        found.read(1)
    assert found.name(1) == "train.parquet row 1"
