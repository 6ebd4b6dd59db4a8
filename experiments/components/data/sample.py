"""A look at some images of a data set before anything reads all of them: how many a trial could not decode, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from experiments.components.data.images import open_image
from experiments.components.data.parquet import CorruptRow
from experiments.components.workload import DataError
from experiments.datasets.own.table import Part

ROWS = 256  # looked at, at most


def broken_images(part: Part, column: str) -> tuple[int, list[str]]:
    """(rows looked at, what is wrong with each that cannot be decoded), of the first ROWS images of a column.

    Raises OwnDataError for files that cannot be read.
    """
    looked, wrong = 0, list[str]()
    for value in islice(_values(part, column), ROWS):
        data, name = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if problem := problem_of(data):
            wrong.append(f"{name or f'row {looked}'}: {problem}")
        looked += 1
    return looked, wrong


def _values(part: Part, column: str) -> Iterator[Any]:
    for batch in part.batches([column]):
        yield from (value.as_py() for value in batch.column(0))


def problem_of(data: Any) -> str | None:
    """Why a trial could not use these bytes as an image; None if it could."""
    try:
        open_image(data).convert("RGB")
    except (CorruptRow, DataError) as error:
        return str(error)
    except Exception as error:  # Pillow's readers raise whatever broken bytes lead them to
        return f"cannot be decoded: {error}"
    return None
