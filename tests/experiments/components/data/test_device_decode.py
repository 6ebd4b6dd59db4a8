"""Decoding on the device, with a stand-in for torchvision's decoder: what it is given, and what is made of its images."""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.components.data import device_decode
from experiments.components.data.images import Crop, decode
from experiments.components.workload import DataError, Unsupported


def jpeg(width: int, height: int) -> bytes:
    """Smooth, so that the decoders' different filters give nearly the same."""
    down, across = np.mgrid[0:height, 0:width]
    pixels = np.stack([across * 255 / width, down * 255 / height, np.full_like(down, 90)], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """torchvision.io.decode_jpeg(list of uint8 tensors on the host, mode, device) -> list of uint8 (3, height, width)."""
    seen = SimpleNamespace(calls=[], error=None)

    def decode_jpeg(encoded: list[torch.Tensor], *, mode: Any, device: Any) -> list[torch.Tensor]:
        seen.calls.append((mode, device))
        if seen.error:
            raise seen.error
        assert all(one.dtype == torch.uint8 and one.ndim == 1 and one.device.type == "cpu" for one in encoded)
        return [torch.from_numpy(np.array(Image.open(io.BytesIO(bytes(one.numpy()))).convert("RGB"))).permute(2, 0, 1) for one in encoded]

    module = SimpleNamespace(decode_jpeg=decode_jpeg, ImageReadMode=SimpleNamespace(RGB="RGB"))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(__version__="0.26.0+cu130", io=module))
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    return seen


def encoded(*images: bytes) -> list[torch.Tensor]:
    return [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in images]


def test_it_gives_what_the_host_decodes_cropped_alike(torchvision: SimpleNamespace) -> None:
    wide, tall = jpeg(96, 48), jpeg(40, 80)
    out = device_decode.decode(encoded(wide, tall), [Crop(8, 0, 88, 48), Crop(0, 0, 40, 80)], 32, torch.device("cpu"))
    assert torchvision.calls == [("RGB", torch.device("cpu"))], "one call for the whole batch"
    assert out.shape == (2, 32, 32, 3) and out.dtype == torch.uint8
    whole = torch.from_numpy(decode(tall, 32, None).copy())
    assert (out[1].int() - whole.int()).abs().float().mean() < 2
    assert out[0, :, 0, 0].float().mean() == pytest.approx(255 * 8 / 96, abs=6), "the crop begins at its left side"


def test_what_the_decoder_refuses_is_said(torchvision: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = [Crop(0, 0, 8, 8)]
    torchvision.error = RuntimeError("Error while decoding JPEG images: Failed to get image info: 3")
    with pytest.raises(DataError, match="image info"):
        device_decode.decode(encoded(jpeg(8, 8)), boxes, 8, "cpu")
    torchvision.error = RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support")
    with pytest.raises(Unsupported, match="nvJPEG"):
        device_decode.decode(encoded(jpeg(8, 8)), boxes, 8, "cpu")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(Unsupported, match="torchvision is not usable"):
        device_decode.decode(encoded(jpeg(8, 8)), boxes, 8, "cpu")


class Stream:
    def __init__(self, name: str) -> None:
        self.name, self.waits = name, list[str]()

    def wait_stream(self, other: Stream) -> None:
        self.waits.append(other.name)


@pytest.mark.parametrize(("version", "waits"), [("0.26.0+cu130", ["own"]), ("0.28.1", ["own", "default"])])
def test_the_decoder_has_memory_of_its_own_and_the_caller_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, version: str, waits: list[str]
) -> None:
    caller, own, default = Stream("caller"), Stream("own"), Stream("default")
    inside: list[str] = []

    @contextmanager
    def stream(one: Stream) -> Any:
        inside.append(one.name)
        yield
        inside.pop()

    for name, value in {"current_stream": caller, "default_stream": default}.items():
        monkeypatch.setattr(torch.cuda, name, lambda place, value=value: value)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(device_decode, "_memory_stream", lambda place: own)
    read_by: list[str] = []
    images = [SimpleNamespace(record_stream=lambda one: read_by.append(one.name))] * 2

    def run() -> Any:
        assert inside == ["own"]
        return images

    assert device_decode._in_order(run, torch.device("cuda", 0), version) == images
    assert caller.waits == waits
    assert read_by == ["caller", "caller"], "the memory is not free before the caller has read it"
