"""The host's processor, which every kind of device reports."""

from __future__ import annotations

from pathlib import Path


def model_name() -> str | None:
    """The processor's name from /proc/cpuinfo; None if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
