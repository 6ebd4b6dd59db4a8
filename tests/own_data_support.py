"""Small data sets of every layout that a user may bring, for tests."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

PARQUET = "Parquet files"


def picture(number: int, side: int = 24) -> bytes:
    """A PNG, another for each number."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (number * 7 % 256, number * 31 % 256, number % 256)).save(buffer, "PNG")
    return buffer.getvalue()


def images(folder: Path, names: Sequence[str]) -> Path:
    """An image file for each name."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(number))
    return folder


def captioned(folder: Path, rows: int, *, column: str = "text") -> Path:
    """Images with captions in metadata.csv."""
    images(folder, [f"{row:03}.png" for row in range(rows)])
    with open(folder / "metadata.csv", "w", newline="") as file:
        csv.writer(file).writerows([["file_name", column], *([f"{row:03}.png", f"picture {row}, of a thing"] for row in range(rows))])
    return folder


def classes(folder: Path, rows: int, names: Sequence[str] = ("cat", "dog", "eel")) -> Path:
    """A folder of images for each class; row i is of class i % len(names)."""
    return images(folder, [f"{names[row % len(names)]}/{row:03}.png" for row in range(rows)])


def pairs(rows: int, image: str = "image", caption: str = "image_description", **more: list[object]) -> pa.Table:
    """A table of images and captions."""
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pictures = pa.array([{"bytes": picture(row), "path": f"{row}.png"} for row in range(rows)], struct)
    return pa.table({image: pictures, caption: [f"picture {row}, of a thing" for row in range(rows)], **more})


def parquet(folder: Path, **tables: pa.Table) -> Path:
    """SPLIT.parquet for each table."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def save_to_disk(folder: Path, table: pa.Table, files: int = 1) -> Path:
    """What Dataset.save_to_disk of datasets 4 writes."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05}-of-{files:05}.arrow" for number in range(files)]
    size = -(-len(table) // files)
    for number, name in enumerate(names):
        part = table.slice(number * size, size)
        with pa.OSFile(str(folder / name), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(part, max_chunksize=7)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_format_type": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def save_dict(folder: Path, **tables: pa.Table) -> Path:
    """What DatasetDict.save_to_disk writes."""
    for name, table in tables.items():
        save_to_disk(folder / name, table, files=2)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(tables)}))
    return folder
