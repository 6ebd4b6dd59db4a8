"""The error of the stack."""

from __future__ import annotations

from experiments.config.errors import UserError


class StackError(UserError):
    """The stack cannot be started or stopped. The message says what to do."""
