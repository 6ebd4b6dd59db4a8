"""A look at some images of a data set before anything reads all of them: how many a trial could not decode, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from experiments.components.data.images import CORRUPT_ALWAYS_ALLOWED, CORRUPT_SHARE, open_image
from experiments.components.data.parquet import CorruptRow
from experiments.components.workload import DataError
from experiments.datasets.own.table import Part


@dataclass(frozen=True)
class Sample:
    """`looked`: rows looked at, of `rows`; `broken`: what is wrong with each of them that cannot be decoded."""

    looked: int
    rows: int
    broken: tuple[str, ...]

    @property
    def too_many(self) -> bool:
        """Whether these alone would end a trial (see CorruptRows), or are most of those that were looked at."""
        return len(self.broken) > max(CORRUPT_ALWAYS_ALLOWED, int(CORRUPT_SHARE * self.rows)) or len(self.broken) > self.looked / 2


def look_at_images(part: Part, column: str, rows: int) -> Sample:
    """The first `rows` images of a column. Raises OwnDataError for files that cannot be read."""
    looked, broken = 0, list[str]()
    for value in islice(_values(part, column), rows):
        data, name = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if problem := _problem(data, name):
            broken.append(f"{name or f'row {looked}'}: {problem}")
        looked += 1
    return Sample(looked, part.rows, tuple(broken))


def _values(part: Part, column: str) -> Iterator[Any]:
    for batch in part.batches([column]):
        yield from (value.as_py() for value in batch.column(0))


def _problem(data: Any, name: Any) -> str | None:
    """Why a trial could not use these bytes as an image; None if it could."""
    if not data and name:
        return "only the name of the image is here, not the image"
    try:
        open_image(data).convert("RGB")
    except (CorruptRow, DataError) as error:
        return str(error)
    except Exception as error:  # Pillow's readers raise whatever broken bytes lead them to
        return f"cannot be decoded: {error}"
    return None
