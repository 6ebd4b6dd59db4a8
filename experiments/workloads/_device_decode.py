"""JPEG decoding on a CUDA device through torchvision's nvJPEG, the counterpart of Habana's media pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.workloads._images import Crop
from experiments.workloads._protocol import DataError, Unsupported

if TYPE_CHECKING:
    import torch


def decode(jpegs: list[torch.Tensor], boxes: list[Crop], size: int, device: Any) -> torch.Tensor:
    """uint8 (batch, size, size, 3) on the device from encoded bytes (uint8 on the host), cropped and resized with antialiasing.

    Raises Unsupported without torchvision's CUDA decoder, DataError for a JPEG it refuses.
    """
    import torch
    from torch.nn import functional

    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, RuntimeError) as error:
        raise Unsupported(f"image_decode device: torchvision is not usable ({error})") from error
    try:
        images = decode_jpeg(jpegs, mode=ImageReadMode.RGB, device=device)
    except RuntimeError as error:
        if "nvjpeg" in str(error).lower() and "compiled" in str(error).lower():
            raise Unsupported(f"image_decode device: {error}") from error
        raise DataError(f"nvJPEG refused a batch: {error}") from error
    out = torch.empty((len(images), 3, size, size), dtype=torch.uint8, device=device)
    for index, (image, box) in enumerate(zip(images, boxes, strict=True)):
        part = image[None, :, box.top : box.bottom, box.left : box.right].float()
        resized = functional.interpolate(part, (size, size), mode="bicubic", antialias=True, align_corners=False)
        out[index] = resized[0].round_().clamp_(0, 255)
    return out.permute(0, 2, 3, 1)
