"""What a pool may answer instead of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class PoolError(Exception):
    """A pool cannot be used as things are: says why and what to do."""


class PoolRefused(PoolError):
    """The pool answers, and waiting does not make it usable from here."""
