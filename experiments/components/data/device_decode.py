"""JPEG decoding on a CUDA device through torchvision's nvJPEG, the counterpart of Habana's media pipe."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from experiments.components.data.images import Crop
from experiments.components.workload import DataError, Unsupported

if TYPE_CHECKING:
    import torch

LAST_THAT_ORDERS_THE_CALLER = (0, 27)  # torchvision: up to here the caller's stream waits for the decoder, later only the default stream


def decode(jpegs: list[torch.Tensor], boxes: list[Crop], size: int, device: Any) -> torch.Tensor:
    """uint8 (batch, size, size, 3) on the device from encoded bytes (uint8 on the host), cropped and resized with antialiasing.

    Raises Unsupported without torchvision's CUDA decoder, and DataError for a JPEG that it refuses.
    """
    import torch
    from torch.nn import functional

    try:
        import torchvision
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, RuntimeError) as error:
        raise Unsupported(f"image_decode device: torchvision is not usable ({error})") from error
    place = torch.device(device)

    def run() -> list[torch.Tensor]:
        return list(decode_jpeg(jpegs, mode=ImageReadMode.RGB, device=place))

    try:
        images = _in_order(run, place, torchvision.__version__) if place.type == "cuda" else run()
    except RuntimeError as error:
        if "nvjpeg" in str(error).lower() and "compiled" in str(error).lower():
            raise Unsupported(f"image_decode device: {error}") from error
        raise DataError(f"nvJPEG refused a batch: {error}") from error
    out = torch.empty((len(images), 3, size, size), dtype=torch.uint8, device=place)
    for index, (image, box) in enumerate(zip(images, boxes, strict=True)):
        part = image[None, :, box.top : box.bottom, box.left : box.right].float()
        resized = functional.interpolate(part, (size, size), mode="bicubic", antialias=True, align_corners=False)
        out[index] = resized[0].round_().clamp_(0, 255)
    return out.permute(0, 2, 3, 1)


def _in_order(run: Callable[[], list[torch.Tensor]], place: torch.device, version: str) -> list[torch.Tensor]:
    """Decode so that neither the caller reads too early nor the decoder writes too early.

    The decoder writes from a stream of its own into memory that it takes from the caller's stream, without waiting for what that stream
    still does with it (pytorch/vision#9606). So it is given memory of a stream on which nothing else ever runs, and that memory is free
    again only when the caller's stream has read it.
    """
    import torch

    caller, own = torch.cuda.current_stream(place), _memory_stream(place)
    with torch.cuda.stream(own):
        images = run()
    caller.wait_stream(own)
    if tuple(int(part) for part in version.split(".")[:2]) > LAST_THAT_ORDERS_THE_CALLER:
        caller.wait_stream(torch.cuda.default_stream(place))
    for image in images:
        image.record_stream(caller)
    return images


@cache
def _memory_stream(place: torch.device) -> Any:
    import torch

    return torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
