"""Decide from an attempt's result whether the trial is tried again. TrialRunner carries the decision out.

As in Ray Train, whose FailurePolicy also returns a decision that the controller carries out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from experiments.trial import Outcome, TrialResult

PREEMPTED = "preempted"  # start of the reason of an attempt whose node was preempted, that is taken back by the cluster


class Decision(StrEnum):
    """What to do after an attempt."""

    ACCEPT = "accept"  # its result is the trial's
    RETRY = "retry"


@dataclass(frozen=True)
class Charges:
    """Failed attempts of a trial so far, by the budget they are charged to."""

    retries: int = 0
    preemptions: int = 0
    disturbed: int = 0  # measurements that something disturbed

    def charge(self, result: TrialResult) -> Charges:
        """The charges including one more attempt, with this result."""
        if is_disturbed(result):
            return replace(self, disturbed=self.disturbed + 1)
        if is_preempted(result):
            return replace(self, preemptions=self.preemptions + 1)
        return replace(self, retries=self.retries + 1)


@dataclass(frozen=True)
class Policy:
    """How patient the sweep is with a trial. PoolWatch holds its patience with a pool."""

    retries: int = 2  # further attempts after an infrastructure failure
    preemptions: int = 5  # further attempts after preemptions
    disturbed: int = 1  # further attempts because other work disturbed the measurement
    hang_timeout_s: float = 600.0  # no new journal record for this long

    def decide(self, result: TrialResult, charges: Charges) -> Decision:
        """What to do after an attempt with this result. `charges` includes this attempt, if it is charged at all.

        Failures of the infrastructure are retried, and measurements that something disturbed. Retries, preemptions and disturbed
        measurements have separate budgets; exceeding one ends the trial.
        """
        if is_disturbed(result):
            return Decision.RETRY if charges.disturbed <= self.disturbed else Decision.ACCEPT
        overdrawn = charges.retries > self.retries or charges.preemptions > self.preemptions
        return Decision.RETRY if result.outcome is Outcome.INFRA and not overdrawn else Decision.ACCEPT


def is_preempted(result: TrialResult) -> bool:
    """True if the attempt ended because its node was preempted."""
    return (result.reason or "").startswith(PREEMPTED)


def is_disturbed(result: TrialResult) -> bool:
    """True if the attempt measured, and other work was on its device or host meanwhile."""
    return result.outcome is Outcome.OK and result.disturbed is not None
