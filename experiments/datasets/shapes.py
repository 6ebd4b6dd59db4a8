"""Synthetic labelled images (`dataset: drawn-classes`): one large shape each, which is its class, as JPEGs in Parquet.

Every row is a function of (seed, split, row number) alone. The columns are `image`, as struct{bytes, path}, and `label`, the number of the
shape in scenes.SHAPES. Colour, background, place and size tell nothing of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from functools import partial
from pathlib import Path

from experiments.atomic_file import atomic_file
from experiments.datasets.scenes import COLOURS, SHAPES, draw_shape

GENERATOR = 1  # raise it when the same arguments no longer give the same rows: it is part of the fingerprint
CLASSES = len(SHAPES)
SIDE = 64  # pixels
ROWS_PER_GROUP = 512
LAST = "validation.parquet"  # what `build` writes last: where it is there, the set is complete


def fingerprint(*, rows: int, validation_rows: int, seed: int) -> str:
    """16 hex digits: changes with the generator's version and with every argument of `build`."""
    return hashlib.sha256(json.dumps(["shapes", GENERATOR, rows, validation_rows, seed]).encode()).hexdigest()[:16]


def build(directory: Path, *, rows: int, validation_rows: int, seed: int) -> None:
    """Write train.parquet and, last, validation.parquet to `directory`. Each file appears complete or not at all.

    Raises ValueError for row counts below 1.
    """
    if min(rows, validation_rows) < 1:
        raise ValueError(f"cannot generate {rows} + {validation_rows} labelled images")
    directory.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("validation", validation_rows)):
        atomic_file(directory / f"{split}.parquet", partial(_write_parquet, split=split, count=count, seed=seed))


def image(seed: int, split: str, row: int) -> tuple[bytes, int]:
    """(JPEG, class) of one row."""
    from PIL import Image, ImageDraw

    draw = random.Random(f"{GENERATOR}/{seed}/{split}/{row}")
    label = draw.randrange(CLASSES)
    background, colour = draw.sample(list(COLOURS), 2)
    radius = draw.randint(SIDE // 5, SIDE // 3)
    x, y = (draw.randint(radius, SIDE - 1 - radius) for _ in range(2))
    picture = Image.new("RGB", (SIDE, SIDE), COLOURS[background])
    draw_shape(ImageDraw.Draw(picture), SHAPES[label], COLOURS[colour], x, y, radius)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=88)
    return buffer.getvalue(), label


def _write_parquet(path: Path, split: str, count: int, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="none") as writer:  # JPEGs do not compress
        for start in range(0, count, ROWS_PER_GROUP):
            rows = [image(seed, split, row) for row in range(start, min(count, start + ROWS_PER_GROUP))]
            images = [{"bytes": data, "path": f"{split}-{start + at:06d}.jpg"} for at, (data, _) in enumerate(rows)]
            writer.write_table(pa.table([pa.array(images, schema[0].type), pa.array([label for _, label in rows])], schema=schema))
