"""A value as the one JSON text that is hashed: for keys, digests and seals."""

from __future__ import annotations

import json

# one encoder for all: a plan hashes tens of thousands of values
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: object) -> str:
    """Keys sorted, no spaces, ASCII. Raises TypeError or ValueError if JSON cannot represent it, also for NaN and infinity."""
    return _ENCODER.encode(value)
