"""Batches of image and caption from row numbers: decoding, random crop, resizing and tokenisation on the host.

Images are uint8 (batch, height, width, 3), a quarter of the bytes of fp32 on the way to the device. The device normalises them.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from experiments.components.data.parquet import BatchIndices, CorruptRow, Rows
from experiments.components.workload import Batch, DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CORRUPT_SHARE = 0.01  # of the split's rows; more than this, and more than CORRUPT_ALWAYS_ALLOWED, is an error
CORRUPT_ALWAYS_ALLOWED = 3
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # that a data set may hold
END_OF_JPEG = b"\xff\xd9"
KEPT_BYTES = 8 * 2**30  # of decoded images in a process, at most; what is beyond is decoded each time


@dataclass(frozen=True)
class Crop:
    """A box of the original image, in pixels, that becomes the model's square image."""

    left: int
    top: int
    right: int
    bottom: int


def crop_box(width: int, height: int, draw: random.Random | None) -> Crop:
    """A random box with 80 to 100 % of each side, or the whole image without a generator.

    Images are never flipped, because captions say left and right.
    """
    if draw is None:
        return Crop(0, 0, width, height)
    box_width, box_height = max(1, round(width * draw.uniform(0.8, 1))), max(1, round(height * draw.uniform(0.8, 1)))
    left, top = draw.randint(0, width - box_width), draw.randint(0, height - box_height)
    return Crop(left, top, left + box_width, top + box_height)


def open_image(data: bytes | None) -> Any:
    """The image, its header read. Raises CorruptRow; DataError for one so large that decoding it would be an attack.

    Only FORMATS are tried: for others Pillow starts programs (EPS: Ghostscript) or old readers that nobody tests.
    """
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise CorruptRow("no image bytes")
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError(f"refused to decode: {error}") from error
    except UnidentifiedImageError as error:  # whose text names an object in memory
        raise CorruptRow(f"not an image in {', '.join(FORMATS)}") from error
    except Exception as error:  # Pillow's readers raise whatever a broken header leads them to
        raise CorruptRow(f"not an image in {', '.join(FORMATS)}: {error}") from error
    # up to twice the limit Pillow only warns; a filter that makes it raise would be the whole process's, and other threads decode too
    most = Image.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:
        raise DataError(f"refused to decode: {image.width} x {image.height} pixels are more than Pillow's limit of {most}")
    return image


def decode(data: bytes | None, size: int, draw: random.Random | None) -> Any:
    """The image as uint8 (size, size, 3), cropped by `draw`, resized bicubically. Raises CorruptRow and DataError."""
    import numpy as np
    from PIL import Image

    image = open_image(data)
    box = crop_box(image.width, image.height, draw)
    scale = image.width, image.height
    try:
        image.draft("RGB", (size, size))  # JPEG: decode at the smallest eighth that is still larger than `size`
        image = image.convert("RGB")
        across, down = image.width / scale[0], image.height / scale[1]
        part = (box.left * across, box.top * down, box.right * across, box.bottom * down)
        return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=part, reducing_gap=3.0))
    except Exception as error:
        raise CorruptRow(f"cannot be decoded: {error}") from error


class PairDataset:
    """A torch map-style dataset whose index is a BatchIndices and whose item is a whole batch.

    `where` is "cpu" (decode here) or "device" (pass on the JPEG's bytes and the crop boxes). `keep`: decode each image once and keep it,
    up to KEPT_BYTES in each process; only without augmentation.
    """

    def __init__(
        self,
        rows: Rows,
        tokenizer: Tokenizer,
        *,
        size: int,
        text_length: int,
        augment: bool,
        where: Literal["cpu", "device"],
        keep: bool = False,
    ) -> None:
        self._kept: dict[int, tuple[Any, str]] | None = {} if keep and not augment and where == "cpu" else None
        self._most = KEPT_BYTES // (3 * size * size)
        self.rows, self.tokenizer, self.size, self.augment, self.where = rows, tokenizer, size, augment, where
        pad, name = tokenizer.token_to_id("<pad>"), "<pad>"
        self.tokenizer.enable_truncation(text_length)
        self.tokenizer.enable_padding(length=text_length, pad_id=1 if pad is None else pad, pad_token=name)

    def __getitem__(self, indices: BatchIndices) -> Batch:
        """input_ids and attention_mask (batch, text), pixels (batch, size, size, 3) or jpegs and boxes, corrupt [(row, name, why)].

        A spare row takes the place of a corrupt one. Raises DataError if there are too few.
        """
        import torch

        draw = random.Random(indices.seed) if self.augment else None
        images: list[Any] = []
        captions: list[str] = []
        corrupt: list[tuple[int, str, str]] = []
        waiting = iter((*indices.rows, *indices.spare))
        while len(images) < len(indices.rows):
            row = next(waiting, None)
            if row is None:
                raise DataError("a batch ran out of readable rows; corrupt: " + ", ".join(f"{name} ({why})" for _, name, why in corrupt))
            if self._kept is not None and row in self._kept:
                image, text = self._kept[row]
                images.append(image)
                captions.append(text)
                continue
            try:
                data, caption = self.rows.read(row)
                if caption is None:
                    raise CorruptRow("no caption")
                images.append(decode(data, self.size, draw) if self.where == "cpu" else self._encoded(data, draw))
                captions.append(caption)
                if self._kept is not None and len(self._kept) < self._most:
                    self._kept[row] = images[-1], caption
            except CorruptRow as error:
                corrupt.append((row, self.rows.name(row), str(error)))
            except DataError as error:
                raise DataError(f"{self.rows.name(row)}: {error}") from error
        encodings = self.tokenizer.encode_batch_fast(captions)
        batch: Batch = {
            "input_ids": torch.tensor([encoding.ids for encoding in encodings]),
            "attention_mask": torch.tensor([encoding.attention_mask for encoding in encodings]),
            "corrupt": corrupt,
        }
        if self.where == "cpu":
            import numpy as np

            batch["pixels"] = torch.from_numpy(np.stack(images))
        else:
            batch["jpegs"] = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data, _ in images]
            batch["boxes"] = [box for _, box in images]
        return batch

    def _encoded(self, data: bytes | None, draw: random.Random | None) -> tuple[bytes, Crop]:
        """(JPEG, crop box) for the device's decoder. It fails on a whole batch if one image is broken, so cheap checks are made here.

        Raises CorruptRow.
        """
        image = open_image(data)
        if image.format != "JPEG" or image.mode not in ("RGB", "L"):
            raise CorruptRow(f"the device decodes RGB JPEGs only, not {image.format} {image.mode}")
        assert data is not None
        if not data.rstrip(b"\0").endswith(END_OF_JPEG):
            raise CorruptRow("cut off before the end of the JPEG")
        return data, crop_box(image.width, image.height, draw)


class CorruptRows:
    """Counts the distinct corrupt rows of a split and notes each once.

    The cap is CORRUPT_SHARE of the rows, but at least CORRUPT_ALWAYS_ALLOWED.
    """

    def __init__(self, rows: int, note: Any) -> None:
        self._cap = max(CORRUPT_ALWAYS_ALLOWED, int(rows * CORRUPT_SHARE))
        self._rows, self._note = rows, note
        self._seen: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, entries: list[tuple[int, str, str]]) -> None:
        """Note the rows that are new. Raises DataError, naming all, once there are more than the cap."""
        for row, name, why in entries:
            if row in self._seen:
                continue
            self._seen[row] = name
            self._note(f"corrupt row skipped: {name}: {why} ({len(self._seen)} so far; {self._cap} of {self._rows} are allowed)")
            if len(self._seen) > self._cap:
                raise DataError(f"more than {self._cap} of {self._rows} rows are corrupt: " + ", ".join(self._seen.values()))
