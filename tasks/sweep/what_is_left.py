"""Which trials of a sweep are done, which another flow began, and which are to begin."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cluster import launchers
from cluster.launchers import Launch
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.failure_policy import is_disturbed
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_record import checked, keep_whole


@dataclass(frozen=True)
class Left:
    """The trials of a plan, each list in the plan's order."""

    done: list[tuple[Trial, TrialResult]] = field(default_factory=list)  # with a final result
    begun: list[Trial] = field(default_factory=list)  # started by another flow, which did not see their end: perhaps running still
    rest: list[Trial] = field(default_factory=list)
    damaged: list[Trial] = field(default_factory=list)  # whose records do not hold what they should: they run again


def end_is_unknown(launch: Launch | None, result: TrialResult | None) -> bool:
    """Whether a trial's last attempt was started and has no result yet: the flow died that followed it. An earlier one may have a result,
    such as of a search for the largest batch that was cut off."""
    return launch is not None and (result is None or result.attempt < launch.attempt)


def may_run(launch: Launch | None, result: TrialResult | None) -> bool:
    """Whether a trial's last attempt may run although no flow follows it: nobody saw its end, or its pool did not answer any more."""
    return end_is_unknown(launch, result) or (launch is not None and result is not None and result.outcome is Outcome.INFRA)


def is_measured_again(folder: Path, result: TrialResult) -> bool:
    """Whether this result is of a disturbed trial that is measured again, by a flow that lives or one that died. Raises DamagedFile."""
    if not is_disturbed(result):
        return False
    launch = launchers.load(folder)
    return launch is not None and launch.replaces is not None and result.attempt < launch.attempt


def replaces_nothing(folder: Path) -> None:
    """Keep that no attempt of the trial replaces a measurement: it has its result. Raises DamagedFile."""
    launch = launchers.load(folder)
    if launch is not None and launch.replaces is not None:
        launchers.save(launch.model_copy(update={"replaces": None}), folder)


def what_is_left(store: SweepStore, plan: Plan) -> Left:
    """The plan's trials by what has become of them. Raises LaterJournal where a later version of this program wrote a trial's journal."""
    left = Left()
    for trial in plan.trials:
        folder = store.trial_dir(trial.key)
        found = checked(trial, folder)
        result = found.result
        if found.damage is not None:
            left.damaged.append(trial)
        elif result is not None and result.outcome.final and not is_measured_again(folder, result):
            left.done.append((trial, result))
        elif may_run(launchers.load(folder), result):
            left.begun.append(trial)
        else:
            left.rest.append(trial)
    keep_whole(store.dir)
    return left
