"""Which images are opened."""

from __future__ import annotations

import io
import struct
import warnings

import pytest
from PIL import Image

from experiments.components.data import images
from experiments.components.data.images import FORMATS, open_image
from experiments.components.data.parquet import CorruptRow
from experiments.components.workload import DataError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def written(name: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, name)
    return file.getvalue()


@pytest.mark.parametrize("name", FORMATS)
def test_a_data_set_may_hold(name: str) -> None:
    assert open_image(written(name)).size == (8, 8)


@pytest.mark.parametrize("data", [EPS, written("TIFF"), written("PPM"), written("ICO")])
def test_no_other_reader_sees_the_bytes(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Image.open(io.BytesIO(data)).size, "Pillow would open it"
    with pytest.raises(CorruptRow, match="not an image in JPEG, PNG, WEBP, GIF, BMP"):
        open_image(data)


def test_an_eps_row_starts_no_ghostscript(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import EpsImagePlugin

    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments, **_: started.append(arguments))
    with pytest.raises(CorruptRow):
        images.decode(EPS, 8, None)
    assert not started


@pytest.mark.parametrize("pixels", [9460, 16000])
def test_an_image_too_large_is_refused_whatever_warnings_do(pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 89 megapixels Pillow warns, over twice as many it raises. Filters of warnings are the whole process's, and threads decode."""
    monkeypatch.setattr(warnings, "filters", [("ignore", None, Warning, None, 0)])
    data = bytearray(written("JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", pixels, pixels)
    with pytest.raises(DataError, match=r"^refused to decode: "):
        open_image(bytes(data))


def test_an_image_just_below_pillows_limit_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64)
    assert open_image(written("PNG")).size == (8, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 63)
    with pytest.raises(DataError, match=r"refused to decode: 8 x 8 pixels are more than Pillow's limit of 63"):
        open_image(written("PNG"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert open_image(written("PNG")).size == (8, 8)
