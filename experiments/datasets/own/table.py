"""A data set of the user's own as tables: one part for each split, whatever files it lies in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

TRAINING = ("train", "training")  # names of splits, the usual ones first
VALIDATION = ("validation", "valid", "val", "dev", "eval", "test")
ROWS_AT_ONCE = 128  # of a batch of rows: images are large
UNNAMED = ""  # the part of a data set that names no split


class OwnDataError(UserError):
    """The files cannot be read as a data set. The message names the file, and what would be right."""


@dataclass(frozen=True)
class Part:
    """The rows of one split. `batches(columns)` gives them in their order, as record batches of about ROWS_AT_ONCE rows.

    `files`: the Parquet files that they lie in; none where a trial cannot read them as they are.
    """

    rows: int
    schema: pa.Schema
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Table:
    """A data set: `what` it is made of, in words; `folder`, where its files lie; its parts by the name of their split."""

    what: str
    folder: Path
    parts: Mapping[str, Part]

    @property
    def named(self) -> bool:
        """Whether the data set says which of its rows are of which split."""
        return list(self.parts) != [UNNAMED]


def is_split(name: str) -> bool:
    """Whether a file or folder of this name holds a split by that name."""
    return name in TRAINING or name in VALIDATION


def inside(root: Path, name: object) -> Path:
    """The file `name`, a path from `root`. Raises OwnDataError for one that is elsewhere or not there: a data set names no other files."""
    path = (root / str(name)).resolve()
    if not path.is_relative_to(root.resolve()):
        raise OwnDataError(f"{root}: the file {name} that it names lies outside of it; put it into the folder")
    if not path.is_file():
        raise OwnDataError(f"{root}: there is no file {name}, which it names")
    return path


def sliced(batch: Any) -> Iterator[Any]:
    """A record batch in pieces of ROWS_AT_ONCE rows at most."""
    for start in range(0, len(batch), ROWS_AT_ONCE):
        yield batch.slice(start, ROWS_AT_ONCE)
