"""Environment variables that every process of a trial inherits, and by which it is found again.

In a module of their own: a trial's process needs them, and the launchers that set them are no part of what it runs.
"""

from __future__ import annotations

MARK = "SWEEPBENCH_TRIAL"  # the trial's key
POOL_MARK = "SWEEPBENCH_POOL"  # beside it in a Ray job: which pool's trial it is
