"""A JSON file that keeps beside a sweep what was found of it, so that nobody finds it again. It has a seal, and can be removed at any time.

Each such file says what it is of: a checksum of all that its content follows from. Who reads it compares that, and takes another as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.paths import runs_root
from experiments.json_file import SEAL, read_file, seal_of, unsealed


def keeps(sweep_dir: Path) -> bool:
    """Whether what was found is kept in this folder: in those of this machine's sweeps, and not in published ones or copies."""
    return sweep_dir.parent == runs_root()


def read_kept(path: Path) -> dict[str, Any]:
    """What the file holds; {} where there is none, where it is damaged, and in a folder that keeps nothing."""
    if not keeps(path.parent):
        return {}
    try:
        return read_file(path, lambda data: unsealed(json.loads(data)), "remove it") or {}
    except DamagedFile:
        return {}


def write_kept(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all. A folder that keeps nothing or cannot be written has none: the next reader finds out anew."""
    if keeps(path.parent):
        with suppress(OSError):
            atomic_write(path, json.dumps({**content, SEAL: seal_of(content)}))
