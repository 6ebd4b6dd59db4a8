"""A folder of images as tables: captions in a metadata file or in a .txt file beside each image, or classes as folders.

    PATH/metadata.csv or .jsonl with `file_name` and other columns     PATH/0001.jpg, PATH/0001.txt     PATH/<class>/0001.jpg

PATH may hold folders named after splits instead, each laid out in one of these ways. The columns are `image`, as struct{bytes, path}, and
those of the metadata file; or `caption`; or `label`, the name of the class.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.datasets.own.table import ROWS_AT_ONCE, UNNAMED, OwnDataError, Part, Table, inside, is_split

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"})
METADATA = ("metadata.csv", "metadata.jsonl")
FILE_NAME, IMAGE, CAPTION, LABEL = "file_name", "image", "caption", "label"
MOST_BYTES = 256 * 2**20  # of one image or caption file
MOST_LINE = 2**20  # characters of one line of metadata

Row = Mapping[str, Any]  # column -> text; the image's file under FILE_NAME


def read(folder: Path, named: Sequence[str]) -> Table | None:
    """The images in `folder`; None where there are none. `named`: splits the user named. Raises OwnDataError."""
    splits = sorted(path for path in folder.iterdir() if path.is_dir() and (is_split(path.name) or path.name in named))
    roots = {path.name: path for path in splits if _images(path)} or {UNNAMED: folder}
    shared = _metadata(folder) if UNNAMED not in roots else None
    if shared is not None:
        raise OwnDataError(f"{shared} lies above the folders of the splits ({', '.join(roots)}): put one into each")
    parts, words = dict[str, Part](), dict[str, None]()
    for name, root in roots.items():
        if (found := _rows(root)) is None:
            return None
        what, rows = found
        words[what] = None
        parts[name] = _part(root, rows)
    return Table(f"images with {' and '.join(words)}", folder, parts)


def _images(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))


def _metadata(root: Path) -> Path | None:
    found = [root / name for name in METADATA if (root / name).is_file()]
    if len(found) > 1:
        raise OwnDataError(f"{root} has both {' and '.join(METADATA)}: keep one")
    return found[0] if found else None


def _rows(root: Path) -> tuple[str, list[Row]] | None:
    """What says what the images show, in words, and a row for each image; None without images. Raises OwnDataError."""
    if (metadata := _metadata(root)) is not None:
        return metadata.name, _of_metadata(root, metadata)
    images = _images(root)
    if not images:
        return None
    texts = {path: path.with_suffix(".txt") for path in images}
    lacking = [path for path, text in texts.items() if not text.is_file()]
    if not lacking:
        return "a .txt beside each", [{FILE_NAME: str(path.relative_to(root)), CAPTION: _text(text)} for path, text in texts.items()]
    if len(lacking) < len(images):
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise OwnDataError(f"{root}: no caption (.txt beside it) for {', '.join(path.name for path in lacking[:3])}{more}")
    if all(len(path.relative_to(root).parts) == 2 for path in images):
        return "a folder for each class", [{FILE_NAME: str(path.relative_to(root)), LABEL: path.parent.name} for path in images]
    raise OwnDataError(
        f"{root} has images and nothing that says what they show; give {METADATA[0]} with the columns {FILE_NAME} and {CAPTION}, "
        f"a .txt beside each image, or a folder for each class"
    )


def _of_metadata(root: Path, path: Path) -> list[Row]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True) if path.suffix == ".csv" else _json_lines(path, file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OwnDataError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise OwnDataError(f"{path} has no rows")
    for number, row in enumerate(rows, 1):
        if not row.get(FILE_NAME):
            raise OwnDataError(f"{path}, row {number}: no {FILE_NAME}; it has {', '.join(map(str, row))}")
        if row.keys() != rows[0].keys() or None in row:
            raise OwnDataError(f"{path}, row {number} has other columns than row 1")
    if IMAGE in rows[0]:
        raise OwnDataError(f"{path} has a column {IMAGE}, which is the image itself here: rename it")
    return rows


def _json_lines(path: Path, file: Any) -> Iterator[Row]:
    for number in range(1, 2**31):
        line = file.readline(MOST_LINE)
        if not line:
            return
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise OwnDataError(f"{path}:{number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise OwnDataError(f"{path}:{number} is not an object such as {{{FILE_NAME!r}: ..., {CAPTION!r}: ...}}")
        yield row


def _part(root: Path, rows: Sequence[Row]) -> Part:
    """The rows as a part. Each file that they name must be there, and in `root`."""
    import pyarrow as pa

    for row in rows:
        inside(root, row[FILE_NAME])
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    try:
        texts = pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0] if name != FILE_NAME})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise OwnDataError(f"{root}: the values of a metadata column differ in kind: {error}") from error
    schema = pa.schema([(IMAGE, image), *texts.schema])

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        numbered = iter(range(len(rows)))
        while at := list(islice(numbered, ROWS_AT_ONCE)):
            part = texts.slice(at[0], len(at))
            values = {name: part.column(name).combine_chunks() for name in columns if name != IMAGE}
            if IMAGE in columns:
                names = [str(rows[row][FILE_NAME]) for row in at]
                values[IMAGE] = pa.array([{"bytes": _bytes(inside(root, name)), "path": name} for name in names], image)
            yield pa.record_batch([values[name] for name in columns], schema=pa.schema([schema.field(name) for name in columns]))

    return Part(len(rows), schema, batches)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OwnDataError(f"{path} is larger than {MOST_BYTES // 2**20} MiB: no image of a data set is")
        return path.read_bytes()
    except OSError as error:
        raise OwnDataError(f"{path} cannot be read: {error.strerror}") from error


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise OwnDataError(f"{path} is not UTF-8 text: {error}") from error
