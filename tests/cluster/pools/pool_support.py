"""The pool of most tests, and a token of a Ray head's."""

from __future__ import annotations

from typing import Any

from cluster.pools.pool import Pool

TOKEN = "0123456789abcdef"


def pool(**values: Any) -> Pool:
    """This machine's CPUs as pool `p`, but for the fields that are given."""
    return Pool(**{"name": "p", "device": "cpu", "address": "embedded", **values})
