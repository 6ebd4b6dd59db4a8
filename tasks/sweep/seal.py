"""The seal of plan.json: a checksum over its content, which tells whether it was changed after the flow wrote it.

It is no signature: whoever means to forge a plan can compute it anew. It finds plans that were edited or put together by hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEAL = "seal"  # its key in plan.json
SEALED_SINCE = 3  # the first schema whose plans have one


def seal_of(plan: Mapping[str, Any]) -> str:
    """64 hex digits: the SHA-256 of a plan's content as canonical JSON, its seal left out. Raises ValueError for what JSON has not."""
    content = {name: value for name, value in plan.items() if name != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def why_unsealed(path: Path) -> str | None:
    """Why the seal of a plan.json does not hold; None if it does. Raises FileNotFoundError."""
    try:
        plan = json.loads(path.read_text())
    except ValueError:
        return f"{path} is not JSON"
    if SEAL not in plan:
        early = int(plan.get("schema_version", 1)) < SEALED_SINCE
        return f"{path} has no seal: {'an earlier version wrote it' if early else 'it was taken off'}"
    return None if plan[SEAL] == seal_of(plan) else f"{path} was changed after it was written: its seal does not hold"
