"""Why a pool cannot be used."""

from __future__ import annotations

from experiments.config.errors import UserError


class PoolError(UserError):
    """A pool cannot be used now. The message says why and what to do."""


class PoolRefused(PoolError):
    """The pool answers and cannot be used from here. Waiting does not help."""
