"""The kinds of device that this version can run trials on."""

from __future__ import annotations

from pathlib import Path

_DEVICES = Path(__file__).resolve().parents[1] / "devices"


def device_kinds() -> list[str]:
    """Names of the files in cluster/devices that define `open_device`. Reads the files, since importing them needs torch."""
    files = _DEVICES.glob("[!_]*.py")
    return sorted(path.stem for path in files if "\ndef open_device(" in path.read_text())
