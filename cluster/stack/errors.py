"""The stack cannot be started, stopped or found."""

from __future__ import annotations


class StackError(Exception):
    """The stack cannot be started or stopped; the message says what to do."""
