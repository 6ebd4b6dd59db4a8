"""The host's processor, which every kind of device has beside it."""

from __future__ import annotations

from pathlib import Path


def model_name() -> str | None:
    """The processor's name as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
