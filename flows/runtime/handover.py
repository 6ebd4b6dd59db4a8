"""What the command line holds for the flow that it runs in its own process."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from tasks.sweep.head_start import HeadStart


@dataclass(frozen=True)
class Handover:
    """The sweep's lease, which the flow then need not take, and its first trial where that was begun."""

    sweep_id: str
    head_start: HeadStart | None


CURRENT: ContextVar[Handover | None] = ContextVar("handover", default=None)
