"""The kinds of device that this version supports: the files of cluster/devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

_DEVICES = Path(__file__).resolve().parents[1] / "devices"


def device_kinds() -> list[str]:
    """Kinds that this version can run trials on: the files of cluster/devices that open a device. Read, not imported: they need torch."""
    files = _DEVICES.glob("[!_]*.py")
    return sorted(path.stem for path in files if "\ndef open_device(" in path.read_text())
