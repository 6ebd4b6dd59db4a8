"""Habana's media pipe: JPEGs decoded, cropped, resized and normalised on a Gaudi. It reads files, so Parquet bytes are exported first.

Where the pipe cannot be made, the DataLoader decodes as on any device. The trial's environment records which of the two happened.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.components.data.images import END_OF_JPEG, CorruptRows, open_image
from experiments.components.data.parquet import BatchIndices, CorruptRow, Rows
from experiments.components.workload import Batch, DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The random crop nearest to ours (80 to 100 % of each side): the decoder's, by area and aspect ratio
CROP = {"scale_min": 0.64, "scale_max": 1.0, "ratio_min": 0.8, "ratio_max": 1.25}
QUEUE_DEPTH = 3  # batches that the device decodes ahead
_DONE = "exported.json"


@dataclass(frozen=True)
class Exported:
    """Image files of a split: `files` by row; `corrupt` are the rows without one, as (row, name, why)."""

    files: dict[int, Path]
    corrupt: list[tuple[int, str, str]]


def export(rows: Rows, fingerprint: str, split: str, root: Path) -> Exported:
    """Write every image of the split to its own file under `root`, once for each fingerprint. Several ranks may call this at once.

    The decoder fails on a whole batch if one image is broken. So an image that is not an RGB JPEG, or is truncated, gets no file.
    Raises DataError if the files cannot be written.
    """
    from filelock import FileLock

    folder = root / hashlib.sha256(f"{fingerprint}/{split}/{len(rows)}".encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / _DONE
    with FileLock(folder / ".lock"):
        if not done.exists():
            corrupt: list[tuple[int, str, str]] = []
            try:
                for row in range(len(rows)):
                    try:
                        data, _ = rows.read(row)
                        (folder / f"{row}.jpg").write_bytes(_checked(data))
                    except CorruptRow as error:
                        corrupt.append((row, rows.name(row), str(error)))
                temporary = folder / f".{_DONE}.{os.getpid()}"
                temporary.write_text(json.dumps(corrupt))
                temporary.replace(done)
            except OSError as error:
                raise DataError(f"images cannot be exported to {folder}: {error}") from error
    broken = [(int(row), str(name), str(why)) for row, name, why in json.loads(done.read_text())]
    without = {row for row, _, _ in broken}
    return Exported({row: folder / f"{row}.jpg" for row in range(len(rows)) if row not in without}, broken)


def _checked(data: bytes | None) -> bytes:
    image = open_image(data)
    if image.format != "JPEG" or image.mode != "RGB":
        raise CorruptRow(f"the media pipe decodes RGB JPEGs only, not {image.format} {image.mode}")
    assert data is not None
    if not data.rstrip(b"\0").endswith(END_OF_JPEG):
        raise CorruptRow("cut off before the end of the JPEG")
    return data


class Names:
    """A torch map-style dataset whose index is a BatchIndices and whose item is a batch of file names and tokens."""

    def __init__(self, rows: Rows, exported: Exported, tokenizer: Tokenizer, text_length: int) -> None:
        self.rows, self.exported, self.tokenizer = rows, exported, tokenizer
        pad, word = tokenizer.token_to_id("<pad>"), "<pad>"
        tokenizer.enable_truncation(text_length)
        tokenizer.enable_padding(length=text_length, pad_id=1 if pad is None else pad, pad_token=word)

    def __getitem__(self, indices: BatchIndices) -> Batch:
        """files (batch,) of str, input_ids and attention_mask (batch, text) of uint32, corrupt [(row, name, why)]."""
        import numpy as np

        reasons = {row: (row, name, why) for row, name, why in self.exported.corrupt}
        files: list[str] = []
        captions: list[str] = []
        corrupt: list[tuple[int, str, str]] = []
        waiting = iter((*indices.rows, *indices.spare))
        while len(files) < len(indices.rows):
            row = next(waiting, None)
            if row is None:
                raise DataError("a batch ran out of readable rows; corrupt: " + ", ".join(f"{name} ({why})" for _, name, why in corrupt))
            caption = self.rows.read(row)[1]
            if row in reasons or caption is None:
                corrupt.append(reasons.get(row, (row, self.rows.name(row), "no caption")))
                continue
            files.append(str(self.exported.files[row]))
            captions.append(caption)
        encodings = self.tokenizer.encode_batch_fast(captions)
        return {
            "files": files,
            "input_ids": np.array([encoding.ids for encoding in encodings], np.uint32),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.uint32),
            "corrupt": corrupt,
        }


@dataclass(frozen=True)
class Shape:
    """The shape of the pipe's batches, and how their images are augmented and normalised."""

    batch: int
    text_length: int
    image_size: int
    mean: tuple[float, ...]  # by channel, of values from 0 to 1
    std: tuple[float, ...]
    augment: bool
    seed: int


def open_pipe(names: Any, files: list[Path], shape: Shape, corrupt: CorruptRows) -> Any:
    """An iterator over batches made on the device: normalised images fp32 (batch, 3, size, size), input_ids, attention_mask.

    `names`: batches of Names; `files`: all files that they may name.
    If the pipe cannot be made, raises whatever the media library raised; the caller records it.
    """
    import numpy as np
    from habana_frameworks.mediapipe import fn
    from habana_frameworks.mediapipe.media_types import dtype, ftype, imgtype, randomCropType
    from habana_frameworks.mediapipe.mediapipe import MediaPipe
    from habana_frameworks.mediapipe.plugins.iterator_pytorch import HPUGenericPytorchIterator

    class Pipe(MediaPipe):  # type: ignore[misc]
        """Files -> decode, crop, resize -> normalise."""

        def __init__(self) -> None:
            super().__init__(device="legacy", batch_size=shape.batch, prefetch_depth=QUEUE_DEPTH, pipe_name="sweepbench")
            size, side = [shape.image_size, shape.image_size], shape.image_size
            crop = {"random_crop_type": randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP, "seed": shape.seed, **CROP}
            self.input = fn.MediaExtReaderOp(impl=_reader(names, shape, corrupt), num_outputs=3, priv_params={"files": files})
            self.decode = fn.ImageDecoder(
                device="hpu", output_format=imgtype.RGB_P, resize=size, resampling_mode=ftype.BICUBIC, **(crop if shape.augment else {})
            )
            mean, inverse = (np.array(values, dtype=np.float32) for values in zip(*_on_bytes(shape), strict=True))
            self.mean = fn.MediaConst(data=mean, shape=[1, 1, 3], dtype=dtype.FLOAT32)
            self.inverse_std = fn.MediaConst(data=inverse, shape=[1, 1, 3], dtype=dtype.FLOAT32)
            self.normalise = fn.CropMirrorNorm(crop_w=side, crop_h=side, crop_pos_x=0, crop_pos_y=0, crop_d=0, dtype=dtype.FLOAT32)

        def definegraph(self) -> Any:
            encoded, ids, mask = self.input()
            return self.normalise(self.decode(encoded), self.mean(), self.inverse_std()), ids, mask

    return HPUGenericPytorchIterator(Pipe())


def _reader(names: Any, shape: Shape, corrupt: CorruptRows) -> type:
    """The class of the pipe's reader, which hands it file names and tokens. The pipe makes the instance itself."""
    import numpy as np
    from habana_frameworks.mediapipe.media_types import dtype, readerOutType
    from habana_frameworks.mediapipe.operators.reader_nodes.read_image_from_dir import get_max_file
    from habana_frameworks.mediapipe.operators.reader_nodes.reader_nodes import media_ext_reader_op_impl, media_ext_reader_op_tensor_info

    class Reader(media_ext_reader_op_impl):  # type: ignore[misc]
        """Hands file names and tokens to the pipe."""

        def __init__(self, params: Any, fw_params: Any) -> None:
            self.batch_size = fw_params.batch_size
            self.files = [str(path) for path in params["priv_params"]["files"]]
            self.largest = get_max_file(self.files)

        def gen_output_info(self) -> list[Any]:
            text = np.array([shape.text_length, self.batch_size], dtype=np.uint32)
            names_of_files = media_ext_reader_op_tensor_info(dtype.NDT, np.array([self.batch_size], dtype=np.uint32), "")
            return [names_of_files, *(media_ext_reader_op_tensor_info(dtype.UINT32, text, "") for _ in range(2))]

        def get_largest_file(self) -> Any:
            return self.largest

        def get_media_output_type(self) -> Any:
            return readerOutType.FILE_LIST

        def __len__(self) -> int:
            return max(1, len(self.files) // int(self.batch_size))

        def __iter__(self) -> Any:
            self.batches = iter(names)
            return self

        def __next__(self) -> Any:
            batch = next(self.batches)
            corrupt.add(batch["corrupt"])
            return np.array(batch["files"]), batch["input_ids"], batch["attention_mask"]

    return Reader


def batches(pipe: Any) -> Iterator[Batch]:
    """The pipe's batches: pixel_values fp32 (batch, 3, size, size), input_ids and attention_mask int64 (batch, text)."""
    for pixels, ids, mask in pipe:
        yield {"pixel_values": pixels, "input_ids": ids.long(), "attention_mask": mask.long()}


def _on_bytes(shape: Shape) -> list[tuple[float, float]]:
    """(mean, 1 / std) by channel, of values from 0 to 255."""
    return [(mean * 255, 1 / (std * 255)) for mean, std in zip(shape.mean, shape.std, strict=True)]
