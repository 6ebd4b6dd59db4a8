"""Which plans have a seal (see experiments/json_file.py), and why one does not hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.config.errors import DamagedFile
from experiments.json_file import SEAL, read_file, unsealed

SEALED_SINCE = 3  # the first schema whose plans have one
RESTORE = "put back what the sweep wrote, or start another sweep"


def sealed_content(path: Path) -> dict[str, Any] | None:
    """The content of a plan.json whose seal holds, or of an early one, which has none; None where there is none. Raises DamagedFile."""
    return read_file(path, content_of, RESTORE)


def why_unsealed(path: Path) -> str | None:
    """Why nothing vouches for a plan.json: it is damaged, or too early for a seal; None where its seal holds or there is no plan."""
    try:
        content = sealed_content(path)
    except DamagedFile as error:
        return str(error)
    early = content is not None and _version(content) < SEALED_SINCE
    return f"{path} has no seal: an earlier version wrote it" if early else None


def content_of(data: bytes) -> dict[str, Any]:
    """What the bytes of a plan.json hold, without the seal. Raises ValueError where its seal does not hold or was taken off."""
    raw = json.loads(data.decode())
    content = unsealed(raw)
    if SEAL not in raw and _version(content) >= SEALED_SINCE:
        raise ValueError("has no seal: it was taken off")
    return content


def _version(content: Mapping[str, Any]) -> int:
    return int(content.get("schema_version", 1))
