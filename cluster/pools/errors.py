"""What a pool may answer instead of an answer."""

from __future__ import annotations

from experiments.config.errors import UserError


class PoolError(UserError):
    """A pool cannot be used as things are: says why and what to do."""


class PoolRefused(PoolError):
    """The pool answers, and waiting does not make it usable from here."""
