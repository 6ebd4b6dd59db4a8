"""What a sweep asks: by it a campaign knows a sweep again, on disk and on an earlier page."""

from __future__ import annotations

from experiments.spec.campaign import CampaignSweep
from tasks.sweep.store import Request

Question = tuple[str, ...]


def asked_for(request: Request | CampaignSweep) -> Question:
    """Suite, profile, pools, and what was chosen and set, in whatever order. Two that ask the same have the same cells, unless the suite
    has changed. How often each is measured, and for how long, is no part of it."""
    chosen = {name: sorted(map(repr, values)) for name, values in request.only.items()}
    return request.suite, request.profile, repr(sorted(request.pools)), repr(sorted(chosen.items())), repr(sorted(request.set.items()))
