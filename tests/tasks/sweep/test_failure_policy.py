"""Whether a trial is tried again: decided on made-up results."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome, TrialResult
from tasks.sweep.failure_policy import Charges, Decision, Policy, is_disturbed, is_preempted


def result(outcome: Outcome, reason: str | None = "made up") -> TrialResult:
    return TrialResult(key="k", attempt=1, outcome=outcome, reason=reason, started_at=1.0, finished_at=2.0)


LOST, PREEMPTED = result(Outcome.INFRA, "worker lost: x"), result(Outcome.INFRA, "preempted: x")


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.INFRA])
def test_what_is_not_the_infrastructures_failure_is_accepted(outcome: Outcome) -> None:
    assert Policy(retries=9, preemptions=9).decide(result(outcome), Charges()) is Decision.ACCEPT


@pytest.mark.parametrize(
    ("spent", "decision"),
    [
        (Charges(), Decision.RETRY),  # the attempt of a dead flow, charged to nobody
        (Charges(retries=2), Decision.RETRY),
        (Charges(retries=3), Decision.ACCEPT),
        (Charges(preemptions=5), Decision.RETRY),
        (Charges(preemptions=6), Decision.ACCEPT),
        (Charges(retries=2, preemptions=5), Decision.RETRY),
        (Charges(retries=3, preemptions=0), Decision.ACCEPT),
        (Charges(retries=0, preemptions=6), Decision.ACCEPT),
    ],
)
def test_each_budget_may_be_spent_and_not_overdrawn(spent: Charges, decision: Decision) -> None:
    policy = Policy()
    assert (policy.retries, policy.preemptions, policy.hang_timeout_s) == (2, 5, 600.0)
    assert policy.decide(LOST, spent) is policy.decide(PREEMPTED, spent) is decision


def test_without_a_budget_the_first_failure_is_accepted() -> None:
    policy = Policy(retries=0, preemptions=0)
    assert policy.decide(LOST, Charges()) is Decision.RETRY
    assert policy.decide(LOST, Charges().charge(LOST)) is Decision.ACCEPT
    assert policy.decide(PREEMPTED, Charges().charge(PREEMPTED)) is Decision.ACCEPT


def test_a_measurement_that_was_disturbed_is_repeated_within_its_own_budget() -> None:
    disturbed = TrialResult(key="k", attempt=1, outcome=Outcome.OK, disturbed="other work", started_at=1.0, finished_at=2.0)
    assert is_disturbed(disturbed) and not is_disturbed(result(Outcome.OK, None)) and not is_disturbed(LOST)
    assert Policy().decide(disturbed, Charges(disturbed=1)) is Decision.RETRY
    assert Policy().decide(disturbed, Charges(disturbed=2)) is Decision.ACCEPT
    assert Policy(disturbed=0).decide(disturbed, Charges(disturbed=1)) is Decision.ACCEPT
    assert Policy().decide(disturbed, Charges(retries=9, preemptions=9, disturbed=1)) is Decision.RETRY
    assert Charges(1, 1).charge(disturbed) == Charges(1, 1, disturbed=1)


def test_an_attempt_is_charged_to_one_budget() -> None:
    assert Charges().charge(LOST) == Charges(retries=1)
    assert Charges(1, 1).charge(PREEMPTED) == Charges(retries=1, preemptions=2)
    assert Charges(1, 1).charge(result(Outcome.INFRA, None)) == Charges(retries=2, preemptions=1)


@pytest.mark.parametrize(
    ("reason", "preempted"), [("preempted: the node", True), ("preempted", True), ("worker lost: preempted", False), (None, False)]
)
def test_a_reason_says_at_its_beginning_that_a_node_was_taken_back(reason: str | None, preempted: bool) -> None:
    assert is_preempted(result(Outcome.INFRA, reason)) is preempted
