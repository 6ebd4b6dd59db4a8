"""The synthetic image data set (`dataset: drawn`): captioned scenes as JPEGs in Parquet, and a tokenizer trained on their captions.

Every row is a function of (seed, split, row number) alone. The columns are those of the New Yorker caption contest: `image` as
struct{bytes, path} and `image_description`. A caption names the background, two groups of shapes (count, size, colour, shape) and how
the groups lie to each other. So captions almost never repeat within a batch, and a model can learn which image belongs to a caption.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.atomic_file import atomic_file
from experiments.datasets.parquet_writer import write_tokenizer

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATOR = 1  # raise it when the same arguments no longer give the same rows: it is part of the fingerprint
COLUMNS = ("image", "image_description")
VOCABULARY = 512
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # ids 0 to 4, as BridgeTower's text tower expects them
LAST = "tokenizer"  # what `build` writes last: where it is there, the set is complete
TEMPLATE = "<s> $A </s>"  # RoBERTa's special tokens around each caption
ROWS_PER_GROUP = 128

Colour = tuple[int, int, int]
COLOURS: dict[str, Colour] = {
    "red": (214, 40, 40),
    "green": (40, 160, 70),
    "blue": (40, 80, 210),
    "yellow": (240, 210, 50),
    "purple": (130, 50, 170),
    "orange": (240, 140, 30),
    "white": (245, 245, 245),
    "black": (20, 20, 20),
    "cyan": (60, 200, 210),
    "pink": (245, 150, 190),
}
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
RELATIONS = ("left of", "right of", "above", "below")
SHAPES = ("circle", "square", "triangle", "cross", "ring", "diamond")


@dataclass(frozen=True)
class Group:
    """Some equal shapes: how many, how large, which."""

    count: int
    large: bool
    colour: str
    shape: str

    def __str__(self) -> str:
        plural = "" if self.count == 1 else ("es" if self.shape == "cross" else "s")
        return f"{NUMBERS[self.count]} {'large' if self.large else 'small'} {self.colour} {self.shape}{plural}"


@dataclass(frozen=True)
class Scene:
    """What one row shows. `first` lies `relation` `second`; width and height in pixels."""

    background: str
    first: Group
    relation: str
    second: Group
    width: int
    height: int

    @property
    def caption(self) -> str:
        """The scene in one sentence, such as `a red background with one large blue ring left of two small green circles`."""
        article = "an" if self.background == "orange" else "a"
        return f"{article} {self.background} background with {self.first} {self.relation} {self.second}"


def fingerprint(*, rows: int, validation_rows: int, seed: int, min_size: int = 96, max_size: int = 512) -> str:
    """16 hex digits: changes with the generator's version and with every argument of `build`."""
    text = json.dumps([GENERATOR, rows, validation_rows, seed, min_size, max_size])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build(directory: Path, *, rows: int, validation_rows: int, seed: int, min_size: int = 96, max_size: int = 512) -> None:
    """Write train.parquet, validation.parquet and tokenizer/tokenizer.json to `directory`. Each file appears complete or not at all.

    Width and height of an image are uniform from `min_size` to `max_size` pixels. Raises ValueError for sizes or row counts below 1.
    """
    if min(rows, validation_rows, min_size) < 1 or max_size < min_size:
        raise ValueError(f"cannot generate {rows} + {validation_rows} rows of {min_size} to {max_size} pixels")
    directory.mkdir(parents=True, exist_ok=True)
    scenes = {
        split: [scene(seed, split, row, min_size, max_size) for row in range(count)]
        for split, count in (("train", rows), ("validation", validation_rows))
    }
    for split, rows_of_split in scenes.items():
        atomic_file(directory / f"{split}.parquet", partial(_write_parquet, scenes=rows_of_split, seed=seed, split=split))
    captions = [one.caption for one in scenes["train"]]
    write_tokenizer(directory, captions, vocabulary=VOCABULARY, special=SPECIAL_TOKENS, template=TEMPLATE)


def scene(seed: int, split: str, row: int, min_size: int = 96, max_size: int = 512) -> Scene:
    """The scene of one row. The two groups and the background differ in colour, so that every group can be seen."""
    draw = random.Random(f"{GENERATOR}/{seed}/{split}/{row}")
    background, colour, other = draw.sample(sorted(COLOURS), 3)
    groups = [Group(draw.randint(1, 4), draw.random() < 0.5, shade, draw.choice(SHAPES)) for shade in (colour, other)]
    width, height = draw.randint(min_size, max_size), draw.randint(min_size, max_size)
    return Scene(background, groups[0], draw.choice(RELATIONS), groups[1], width, height)


def draw(scene: Scene, noise_seed: int) -> Image:
    """The scene as an RGB image: soft light and grain on the background, so that a JPEG of it costs what a photo's does to decode."""
    import numpy as np
    from PIL import Image, ImageDraw

    generator = np.random.default_rng(noise_seed)
    light = np.linspace(-18, 18, scene.width)[None, :] * generator.uniform(-1, 1) + np.linspace(-18, 18, scene.height)[:, None]
    grain = 6 * generator.standard_normal((scene.height, scene.width), np.float32)
    ground = np.asarray(COLOURS[scene.background], np.float32)[None, None] + (light + grain).astype(np.float32)[:, :, None]
    image = Image.fromarray(ground.clip(0, 255).astype(np.uint8), "RGB")
    pen = ImageDraw.Draw(image)
    horizontal = scene.relation in ("left of", "right of")
    halves = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)] if horizontal else [(0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 1.0, 1.0)]
    if scene.relation in ("right of", "below"):
        halves.reverse()
    for group, half in zip((scene.first, scene.second), halves, strict=True):
        for x, y, radius in _places(group, half, scene.width, scene.height):
            draw_shape(pen, group.shape, COLOURS[group.colour], x, y, radius)
    return image


def _places(group: Group, half: tuple[float, float, float, float], width: int, height: int) -> Iterator[tuple[float, float, float]]:
    """Centre and radius in pixels of each shape, in a grid over the group's half."""
    left, top, right, bottom = half[0] * width, half[1] * height, half[2] * width, half[3] * height
    across = right - left > bottom - top
    columns = math.ceil(math.sqrt(group.count)) if group.count > 2 else (group.count if across else 1)
    lines = math.ceil(group.count / columns)
    cell_x, cell_y = (right - left) / columns, (bottom - top) / lines
    radius = min(cell_x, cell_y) * (0.46 if group.large else 0.26)
    for index in range(group.count):
        yield left + (index % columns + 0.5) * cell_x, top + (index // columns + 0.5) * cell_y, radius


def draw_shape(pen: Any, shape: str, colour: Colour, x: float, y: float, radius: float) -> None:
    """One of SHAPES with an ImageDraw `pen`, about (x, y), in pixels."""
    box = (x - radius, y - radius, x + radius, y + radius)
    match shape:
        case "circle":
            pen.ellipse(box, fill=colour)
        case "ring":
            pen.ellipse(box, outline=colour, width=max(2, round(radius / 3)))
        case "square":
            pen.rectangle(box, fill=colour)
        case "triangle":
            pen.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=colour)
        case "diamond":
            pen.polygon([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], fill=colour)
        case "cross":
            arm = radius / 3
            pen.rectangle((x - arm, y - radius, x + arm, y + radius), fill=colour)
            pen.rectangle((x - radius, y - arm, x + radius, y + arm), fill=colour)


def _jpeg(scene: Scene, noise_seed: int) -> bytes:
    buffer = io.BytesIO()
    draw(scene, noise_seed).save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def _write_parquet(path: Path, scenes: list[Scene], seed: int, split: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("image_description", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none") as writer:  # JPEGs do not compress
        for start in range(0, len(scenes), ROWS_PER_GROUP):
            part = scenes[start : start + ROWS_PER_GROUP]
            images = [
                {"bytes": _jpeg(one, _noise_seed(seed, split, start + offset)), "path": f"{split}-{start + offset:06d}.jpg"}
                for offset, one in enumerate(part)
            ]
            writer.write_table(pa.table([pa.array(images, schema[0].type), pa.array([one.caption for one in part])], schema=schema))


def _noise_seed(seed: int, split: str, row: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{GENERATOR}/{seed}/{split}/{row}".encode()).digest()[:8], "big")
