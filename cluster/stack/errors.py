"""The error of the stack."""

from __future__ import annotations


class StackError(Exception):
    """The stack cannot be started or stopped. The message says what to do."""
