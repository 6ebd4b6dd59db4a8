"""Operators: called on nodes they give a node, which is a function of the batch that the reader gave."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

from .media_types import imgtype, randomCropType


class _Node:
    def __init__(self, reader: Any, compute: Any) -> None:
        self.reader, self.compute = reader, compute

    def __call__(self, batch: Any) -> Any:
        return self.compute(batch)


class MediaExtReaderOp:
    def __init__(self, impl: Any, num_outputs: int = 1, priv_params: Any = None, device: Any = None) -> None:
        self._impl, self._outputs, self._parameters = impl, num_outputs, priv_params

    def open(self, batch_size: int) -> Any:
        files = self._impl({"priv_params": self._parameters}, SimpleNamespace(batch_size=batch_size))
        if len(files.gen_output_info()) != self._outputs:
            raise ValueError(f"the reader describes {len(files.gen_output_info())} outputs, {self._outputs} were announced")
        files.get_largest_file()
        files.get_media_output_type()
        return files

    def __call__(self) -> Any:
        return tuple(_Node(self, lambda batch, number=number: batch[self][number]) for number in range(self._outputs))


class ImageDecoder:
    decoded = 0

    def __init__(
        self,
        device: str = "hpu",
        output_format: str = imgtype.RGB_I,
        resize: Any = None,
        resampling_mode: int = 3,
        random_crop_type: int = randomCropType.NO_RANDOM_CROP,
        scale_min: float = 0.0,
        scale_max: float = 0.0,
        ratio_min: float = 0.0,
        ratio_max: float = 0.0,
        seed: int = 0,
        **_: Any,
    ) -> None:
        if device not in ("hpu", "GAUDI2", "mixed"):
            raise ValueError(f"ImageDecoder decodes on the device, not on {device!r}")
        self._size, self._planar, self._crop = tuple(resize), output_format == imgtype.RGB_P, random_crop_type
        self._scale, self._ratio, self._draw = (scale_min, scale_max), (ratio_min, ratio_max), np.random.default_rng(seed)

    def __call__(self, files: Any) -> Any:
        return _Node(files.reader, lambda batch: np.stack([self._decode(path) for path in files(batch)]))

    def _decode(self, path: Any) -> Any:
        image = Image.open(path).convert("RGB")
        if self._crop == randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP:
            image = image.crop(self._box(image.width, image.height))
        ImageDecoder.decoded += 1
        array = np.asarray(image.resize(self._size, Image.Resampling.BICUBIC))
        return array.transpose(2, 0, 1) if self._planar else array

    def _box(self, width: int, height: int) -> tuple[int, int, int, int]:
        area, ratio = self._draw.uniform(*self._scale) * width * height, self._draw.uniform(*self._ratio)
        across, down = min(width, round((area * ratio) ** 0.5)), min(height, round((area / ratio) ** 0.5))
        left, top = (int(self._draw.integers(0, free + 1)) for free in (width - across, height - down))
        return left, top, left + across, top + down


class MediaConst:
    def __init__(self, data: Any, shape: Any, dtype: Any, device: Any = None) -> None:
        self._data = np.asarray(data).reshape(-1, 1, 1)  # by plane

    def __call__(self) -> Any:
        return lambda batch: self._data


class CropMirrorNorm:
    def __init__(
        self,
        crop_w: int,
        crop_h: int,
        crop_pos_x: float = 0.5,
        crop_pos_y: float = 0.5,
        crop_d: int = 0,
        dtype: str = "float32",
        device: Any = None,
    ) -> None:
        self._dtype = dtype

    def __call__(self, images: Any, mean: Any, inverse_std: Any) -> Any:
        return _Node(images.reader, lambda b: ((images(b).astype("float32") - mean(b)) * inverse_std(b)).astype(self._dtype))
