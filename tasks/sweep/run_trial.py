"""Run one trial to a typed outcome: begin an attempt, follow it to its end, and try again where the policy says so."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cluster.launchers import LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.attempt_end import made_here
from tasks.sweep.begin_attempt import Attempt, AttemptStarter
from tasks.sweep.failure_policy import Decision, Spent
from tasks.sweep.follow_attempt import AttemptFollower
from tasks.sweep.trial_context import TrialContext


@dataclass(frozen=True)
class TrialRunner(TrialContext):
    """Runs trials of one sweep on one pool."""

    def run(self, trial: Trial) -> TrialResult:
        """The trial's result, also published as result.json. Attempts that only the infrastructure ended are made again, from the start.

        An attempt that another flow left is followed to its end, not repeated, and what became of it costs no retry. Raises JournalError if
        the journal was changed by others.
        """
        spent, first = Spent(), True
        while isinstance(attempt := self._begin(trial), Attempt):
            result = self._publish(AttemptFollower(self, trial, attempt.launch).follow())
            if attempt.started_here or not first:
                spent = spent.charge(result)
            if self.stop.is_set() or self.policy.decide(result, spent) is Decision.ACCEPT:
                return result
            first = False
        return attempt

    def _begin(self, trial: Trial) -> Attempt | TrialResult:
        """The attempt to follow, or the trial's result where there is to be none."""
        if final := self._final(trial):  # a worker may publish it even after its trial was given up here
            return final
        starter = AttemptStarter(self, trial)
        try:
            attempt = starter.begin()
        except LaunchError as error:
            outcome, reason = Outcome.INFRA, f"not started: {error}"
            if final := self._final(trial):
                return final
        else:
            if attempt is not None:
                return attempt
            outcome, reason = Outcome.CANCELLED, self.why_stopped()
        return self._publish(made_here(trial, starter.next_number, outcome, reason, time.time()))

    def _final(self, trial: Trial) -> TrialResult | None:
        """The trial's result, if it is one that says something about the trial itself."""
        result = self.store.result(trial.key)
        return result if result is not None and result.outcome.final else None

    def _publish(self, result: TrialResult) -> TrialResult:
        self.store.save_result(result)
        return result
