"""Autocast's cache of weights. Torch; imported on workers only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def weights_cast_anew() -> Iterator[None]:
    """Autocast casts a weight at each use, rather than keep what it has cast until it ends. On leaving, as it was before."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
