"""Run one trial to a typed outcome: begin an attempt, follow it to its end, and retry if the policy says so."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from cluster import launchers
from cluster.launchers import LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.attempt_end import flow_result
from tasks.sweep.begin_attempt import Attempt, AttemptStarter, Measured
from tasks.sweep.count_measured import times_measured
from tasks.sweep.failure_policy import Charges, Decision, is_disturbed
from tasks.sweep.follow_attempt import AttemptFollower
from tasks.sweep.trial_context import TrialContext
from tasks.sweep.what_is_left import is_measured_again, replaces_nothing


@dataclass(frozen=True)
class TrialRunner(TrialContext):
    """Runs trials of one sweep on one pool."""

    def run(self, trial: Trial, begun: Attempt | None = None) -> TrialResult:
        """Run the trial, save its result.json and return the result. Retries, from the start, attempts that only the infrastructure ended.

        `begun`: the first attempt, where this process has begun it already (tasks/sweep/head_start.py).

        An attempt that another flow left running is followed to its end instead of repeated, and is not charged as a retry; nor is one that
        had been measured when it ended, which counts. What was disturbed is measured again, whichever of these it was, also where a flow
        died over it, and then as often in all; if that comes to no measurement, the disturbed one stays. Raises JournalError if the journal
        was changed by others.
        """
        first, disturbed = True, self._disturbed_before(trial)
        if disturbed is not None and self._came_to_nothing(trial):
            return self._stays(trial, disturbed)
        charges = Charges() if disturbed is None else Charges(disturbed=times_measured(disturbed, self.folder(trial)))
        while not isinstance(attempt := begun or self._begin(trial, again=disturbed), TrialResult):
            begun = None
            result = self._save(self._result_of(trial, attempt))
            started_here = isinstance(attempt, Attempt) and attempt.started_here
            if started_here or not first or is_disturbed(result):
                charges = charges.charge(result)
            if self.stop.is_set() or self._accepts(result, charges):
                if disturbed is None:
                    return result
                if result.outcome is not Outcome.OK:
                    return self._stays(trial, disturbed)
                self.disturbances.measured_again(disturbed=is_disturbed(result))
                replaces_nothing(self.folder(trial))
                return result
            if is_disturbed(result):
                disturbed = result
                self.say(trial, f"again: it was disturbed, {result.disturbed}")
            first = False
        return attempt if disturbed is None else self._stays(trial, disturbed)

    def _disturbed_before(self, trial: Trial) -> TrialResult | None:
        """The disturbed measurement that another flow was measuring again when it died; None where it was not."""
        result = self.store.result(trial.key)
        return result if result is not None and is_measured_again(self.folder(trial), result) else None

    def _came_to_nothing(self, trial: Trial) -> bool:
        """Whether the attempt that measured it again ended for good while no flow followed it, and not ok. Ends what is left of it."""
        launch = launchers.load(self.folder(trial))
        result = self.result_of(launch) if launch is not None else None
        if launch is None or result is None or not result.outcome.final:
            return False
        with suppress(LaunchError):
            self.launcher.stop(launch)
        return True

    def _stays(self, trial: Trial, disturbed: TrialResult) -> TrialResult:
        """The disturbed measurement is the trial's result. An attempt that its pool may run still is left to the next flow."""
        self._save(disturbed)
        launch = launchers.load(self.folder(trial))
        if launch is not None and launch.replaces is not None:
            with suppress(LaunchError):
                if not self.launcher.status(launch).running:
                    replaces_nothing(self.folder(trial))
        return disturbed

    def _result_of(self, trial: Trial, attempt: Attempt | Measured) -> TrialResult:
        if isinstance(attempt, Measured):
            return attempt.result
        if not attempt.started_here:
            self.starting(trial.key, attempt.launch.attempt)
        return AttemptFollower(self, trial, attempt.launch).follow()

    def _accepts(self, result: TrialResult, charges: Charges) -> bool:
        """Whether the result is the trial's."""
        if is_disturbed(result) and not self.disturbances.worth_while:
            return True
        return self.policy.decide(result, charges) is Decision.ACCEPT

    def _begin(self, trial: Trial, *, again: TrialResult | None = None) -> Attempt | Measured | TrialResult:
        """The attempt to go by, or the trial's result if no attempt begins. `again`: although it has this one. Raises JournalError."""
        if again is None and (final := self._final(trial)):  # a worker may write it even after this flow gave its trial up
            return final
        starter = AttemptStarter(self, trial)
        try:
            attempt = starter.begin(again=again)
        except LaunchError as error:
            outcome, reason = Outcome.INFRA, f"not started: {error}"
            if again is None and (final := self._final(trial)):
                return final
        else:
            if attempt is not None:
                return attempt
            outcome, reason = Outcome.CANCELLED, self.why_stopped()
        result = flow_result(trial, starter.next_number, outcome, reason, time.time())
        return self._save(result) if again is None else result  # the disturbed measurement stays, also if this flow is killed now

    def _final(self, trial: Trial) -> TrialResult | None:
        """The trial's result if it is final (see Outcome.final), else None."""
        result = self.store.result(trial.key)
        return result if result is not None and result.outcome.final else None

    def _save(self, result: TrialResult) -> TrialResult:
        self.store.save_result(result)
        return result
