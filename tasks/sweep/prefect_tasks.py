"""The steps of a sweep that Prefect shows as tasks. Prefect takes a second to import: only flows import this module, so that
`sweep plan` and the other listings, which need the rest of this package, start without it."""

from __future__ import annotations

from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep import own_data
from tasks.sweep.pool_trials import PoolTrials


@task(name="dataset", task_run_name="dataset", cache_policy=NO_CACHE, persist_result=False)
def make_dataset(trial: Trial) -> None:
    """Draw the data set that a trial reads, or make it of the user's files, unless it is there. Raises DatasetError."""
    own_data.make_ready(trial)


@task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def run_trial(pool: PoolTrials, trial: Trial, name: str) -> State[Any]:
    """Run one trial. Its task run has its log, and its outcome as state. `name`: that of the task run."""
    return state_of(pool.run(trial, get_run_logger()))


def state_of(result: TrialResult) -> State[Any]:
    """Completed for what a sweep may contain and still succeed, named after the outcome unless that is ok; else Cancelled, or Failed under
    the outcome's name."""
    if result.outcome.expected:
        return Completed(name="Completed" if result.outcome is Outcome.OK else str(result.outcome), message=result.reason)
    if result.outcome is Outcome.CANCELLED:
        return Cancelled(message=result.reason)
    return Failed(name=str(result.outcome), message=result.reason)
