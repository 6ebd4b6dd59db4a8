"""Whether a trial is tried again after an attempt: decided from results alone, carried out by TrialRunner.

After Ray Train's FailurePolicy, which also returns a decision and leaves the doing to its controller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from experiments.trial import Outcome, TrialResult

PREEMPTED = "preempted"  # how the reason of an attempt begins whose node was taken back


class Decision(StrEnum):
    """What follows an attempt."""

    ACCEPT = "accept"  # its result is the trial's
    RETRY = "retry"


@dataclass(frozen=True)
class Spent:
    """Attempts of a trial so far, by what they are charged to."""

    retries: int = 0
    preemptions: int = 0

    def charge(self, result: TrialResult) -> Spent:
        """With one more attempt, which ended so."""
        if is_preempted(result):
            return replace(self, preemptions=self.preemptions + 1)
        return replace(self, retries=self.retries + 1)


@dataclass(frozen=True)
class Policy:
    """How patient the sweep is with a trial; with its pool: see PoolWatch."""

    retries: int = 2  # further attempts after an infrastructure failure
    preemptions: int = 5  # further attempts after a node that was taken back, which is no fault of anybody's
    hang_timeout_s: float = 600.0  # no new journal record for this long

    def decide(self, result: TrialResult, spent: Spent) -> Decision:
        """What follows an attempt with this result. `spent`: what was charged until now, this attempt included if it is charged at all.

        Only the infrastructure's failures are tried again, each kind within a budget of its own; either budget, once overdrawn, ends it.
        """
        overdrawn = spent.retries > self.retries or spent.preemptions > self.preemptions
        return Decision.RETRY if result.outcome is Outcome.INFRA and not overdrawn else Decision.ACCEPT


def is_preempted(result: TrialResult) -> bool:
    """True if the attempt ended because its node was taken back."""
    return (result.reason or "").startswith(PREEMPTED)
