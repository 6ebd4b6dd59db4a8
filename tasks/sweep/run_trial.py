"""Run one trial to a typed outcome: begin an attempt, follow it to its end, and retry if the policy says so."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cluster.launchers import LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.attempt_end import flow_result
from tasks.sweep.begin_attempt import Attempt, AttemptStarter
from tasks.sweep.failure_policy import Charges, Decision, is_disturbed
from tasks.sweep.follow_attempt import AttemptFollower
from tasks.sweep.trial_context import TrialContext


@dataclass(frozen=True)
class TrialRunner(TrialContext):
    """Runs trials of one sweep on one pool."""

    def run(self, trial: Trial, begun: Attempt | None = None) -> TrialResult:
        """Run the trial, save its result.json and return the result. Retries, from the start, attempts that only the infrastructure ended.

        `begun`: the first attempt, where this process has begun it already (tasks/sweep/head_start.py).

        An attempt that another flow left running is followed to its end instead of repeated, and is not charged as a retry. A trial that
        was disturbed is measured again; if that comes to no measurement, the disturbed one stays. Raises JournalError if the journal was
        changed by others.
        """
        charges, first, disturbed = Charges(), True, None
        while isinstance(attempt := begun or self._begin(trial, again=disturbed is not None), Attempt):
            begun = None
            if not attempt.started_here:
                self.starting(trial.key, attempt.launch.attempt)
            result = self._save(AttemptFollower(self, trial, attempt.launch).follow())
            if attempt.started_here or not first or is_disturbed(result):
                charges = charges.charge(result)
            if self.stop.is_set() or self._accepts(result, charges):
                if disturbed is None:
                    return result
                if result.outcome is not Outcome.OK:
                    return self._save(disturbed)
                self.disturbances.measured_again(disturbed=is_disturbed(result))
                return result
            if is_disturbed(result):
                disturbed = result
                self.say(trial, f"again: it was disturbed, {result.disturbed}")
            first = False
        return attempt if disturbed is None else self._save(disturbed)

    def _accepts(self, result: TrialResult, charges: Charges) -> bool:
        """Whether the result is the trial's."""
        if is_disturbed(result) and not self.disturbances.worth_while:
            return True
        return self.policy.decide(result, charges) is Decision.ACCEPT

    def _begin(self, trial: Trial, *, again: bool = False) -> Attempt | TrialResult:
        """The attempt to follow, or the trial's result if no attempt begins. `again`: although it has a result. Raises JournalError."""
        if not again and (final := self._final(trial)):  # a worker may write it even after this flow gave its trial up
            return final
        starter = AttemptStarter(self, trial)
        try:
            attempt = starter.begin()
        except LaunchError as error:
            outcome, reason = Outcome.INFRA, f"not started: {error}"
            if not again and (final := self._final(trial)):
                return final
        else:
            if isinstance(attempt, TrialResult):
                return self._save(attempt)
            if attempt is not None:
                return attempt
            outcome, reason = Outcome.CANCELLED, self.why_stopped()
        return self._save(flow_result(trial, starter.next_number, outcome, reason, time.time()))

    def _final(self, trial: Trial) -> TrialResult | None:
        """The trial's result if it is final (see Outcome.final), else None."""
        result = self.store.result(trial.key)
        return result if result is not None and result.outcome.final else None

    def _save(self, result: TrialResult) -> TrialResult:
        self.store.save_result(result)
        return result
