"""Winoground: can a model match two captions, made of the same words, to two images?

Thrush et al., "Winoground: Probing Vision and Language Models for Visio-Linguistic Compositionality", CVPR 2022, arXiv:2204.03162.
An example has the captions c0, c1 and the images i0, i1; c0 belongs to i0 and c1 to i1. With s(c, i), a model's score of a pair:

    text    s(c0, i0) > s(c1, i0)  and  s(c1, i1) > s(c0, i1)
    image   s(c0, i0) > s(c0, i1)  and  s(c1, i1) > s(c1, i0)
    group   both

A tie is wrong. Four scores in a random order give text and image 1/4 each, and group 1/6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.datasets import scenes

CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
COLUMNS = ("image_0", "image_1", "caption_0", "caption_1")  # the data set's own names; `id` and `tag` are read where they are there

Scores = Sequence[Sequence[float]]  # [caption][image], two by two


class WinogroundError(Exception):
    """The local copy cannot be used: names the file and, where it applies, the row."""


@dataclass(frozen=True)
class Example:
    """One example: captions as they are, images as encoded bytes. `name` finds the row again."""

    name: str
    captions: tuple[str, str]
    images: tuple[bytes, bytes]
    tag: str = ""


def judge(scores: Scores) -> dict[str, bool]:
    """text, image and group of one example. Raises ValueError unless there are two by two scores."""
    if len(scores) != 2 or any(len(row) != 2 for row in scores):
        raise ValueError(f"scores of one example are two captions by two images, not {scores!r}")
    (s00, s01), (s10, s11) = scores
    text = s00 > s10 and s11 > s01
    image = s00 > s01 and s11 > s10
    return {"text": text, "image": image, "group": text and image}


def summary(examples: Sequence[Scores]) -> dict[str, float]:
    """Share of correct examples (0 to 1) as winoground_text, _image and _group. Raises ValueError for no examples."""
    if not examples:
        raise ValueError("no examples")
    outcomes = [judge(scores) for scores in examples]
    return {f"winoground_{name}": sum(one[name] for one in outcomes) / len(outcomes) for name in CHANCE}


def read(folder: Path) -> Iterator[Example]:
    """Every example of a folder's Parquet files, in their order. Images are struct{bytes, path}, or bytes; paths start in the folder.

    Raises WinogroundError for a folder without Parquet, a damaged file, a missing column, and a row without image or caption.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise WinogroundError(f"{folder} has no *.parquet file: give the folder of a local copy of the data set")
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                names = file.schema_arrow.names
                missing = [column for column in COLUMNS if column not in names]
                if missing:
                    raise WinogroundError(f"{path} has no column {', '.join(missing)}; it has {', '.join(names)}")
                columns = [*COLUMNS, *(name for name in ("id", "tag") if name in names)]
                row = 0
                for batch in file.iter_batches(batch_size=16, columns=columns):
                    for values in batch.to_pylist():
                        yield _example(values, folder, f"{path.name} row {row}")
                        row += 1
        except (pa.ArrowInvalid, OSError) as error:
            raise WinogroundError(f"{path} is not a whole Parquet file: {error}") from error


def drawn(folder: Path) -> Iterator[Example]:
    """Examples of the same form from the training rows of the synthetic scenes (scenes.py), two rows each. Their scores mean nothing."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / "train.parquet") as file:
        number = 0
        for batch in file.iter_batches(batch_size=16, columns=list(scenes.COLUMNS)):
            rows = batch.to_pylist()
            for first, second in zip(rows[::2], rows[1::2], strict=False):  # an odd last row has no partner
                captions = first["image_description"], second["image_description"]
                yield Example(f"drawn example {number}", captions, (first["image"]["bytes"], second["image"]["bytes"]))
                number += 1


def _example(values: dict[str, Any], folder: Path, where: str) -> Example:
    name = f"{where} (id {values['id']})" if "id" in values else where
    captions = tuple(values[f"caption_{index}"] for index in (0, 1))
    if not all(captions):
        raise WinogroundError(f"{name}: no caption")
    images = tuple(_image(values[f"image_{index}"], folder, name) for index in (0, 1))
    return Example(name, (captions[0], captions[1]), (images[0], images[1]), values.get("tag") or "")


def _image(value: dict[str, Any] | bytes | None, folder: Path, name: str) -> bytes:
    data = value.get("bytes") if isinstance(value, dict) else value
    if data:
        return bytes(data)
    path = value.get("path") if isinstance(value, dict) else None
    if not path:
        raise WinogroundError(f"{name}: no image")
    file = (folder / str(path)).resolve()
    if not file.is_relative_to(folder.resolve()):  # a data set must not name other files of this machine
        raise WinogroundError(f"{name}: the image {path} is outside of {folder}")
    if not file.is_file():
        raise WinogroundError(f"{name}: there is no image {file}")
    return file.read_bytes()
