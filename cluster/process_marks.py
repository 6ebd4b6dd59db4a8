"""Environment variables that mark every process of a trial, so that it can be found again.

They have their own module because a trial's process reads them without importing the launchers that set them.
"""

from __future__ import annotations

MARK = "SWEEPBENCH_TRIAL"  # the trial's key
POOL_MARK = "SWEEPBENCH_POOL"  # in a Ray job also the name of the trial's pool
