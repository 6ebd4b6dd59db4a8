"""`sweep stop`: tell the process that works on a sweep to stop; where it is dead, do it in its place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from rich.console import Console

from cluster import launchers
from cluster.launchers import Launch
from cluster.pools.pool import Pool, find_pool, load_pools
from experiments.config.errors import DamagedFile
from experiments.trial import Outcome, Trial, TrialResult
from flows.runtime.command_environment import prepare_environment
from tasks.sweep.store import Plan, Status, SweepStore, readable_result
from tasks.sweep.what_is_left import is_measured_again, may_run, replaces_nothing

_WAIT_S = 120.0


def stop_sweep(store: SweepStore, reason: str, out: Console) -> int:
    """Stop the sweep and wait until it is stopped. Returns 0, or 1 if not all is stopped, or MLflow could not be told."""
    plan = store.load_plan()
    if store.is_held():
        before = _status(store)
        store.request_stop(reason)
        out.print(f"asked the process that runs {store.sweep_id} to stop ...", highlight=False)
        deadline = time.monotonic() + _WAIT_S
        while store.is_held():
            if time.monotonic() > deadline:
                out.print(f"it still runs after {_WAIT_S:.0f} s; its trials end as soon as it looks", highlight=False)
                return 1
            time.sleep(0.2)
        status = _status(store)
        new = status is not None and status != before  # else of an earlier flow
        out.print(status.message if status and new else f"{store.sweep_id} is stopped", highlight=False, soft_wrap=True)
        return 0
    with store.lease():
        store.request_stop(reason)
        stopped = left = 0
        known = load_pools()
        for trial in plan.trials:
            try:
                folder, result = store.trial_dir(trial.key), store.result(trial.key)
                disturbed = result if result is not None and is_measured_again(folder, result) else None
                if result is not None and disturbed is None and (result.outcome.final or not may_run(launchers.load(folder), result)):
                    continue
                launcher = partial(_launcher, known, trial)  # asked for what was started alone: its pool may be gone from the pools file
                launch = launchers.find(trial, folder, launcher)
                if launch is None or (result is not None and disturbed is None and not launcher().status(launch).running):
                    continue  # one that has a result by now stays as it is, unless its retry runs, or it does although it was given up
                launcher().stop(launch)
            except (launchers.LaunchError, DamagedFile) as error:
                out.print(f"{trial.name} cannot be stopped: {error}", highlight=False, markup=False, soft_wrap=True)
                left += 1
                continue
            _record_stop(store, launch, disturbed, reason)
            stopped += 1
        if not stopped:
            if not left:
                out.print(f"{store.sweep_id} is not running", highlight=False)
            return 1 if left else 0
        out.print(f"{store.sweep_id}: its process was dead; stopped {stopped} trial(s) that it had left running", highlight=False)
        published = _publish(store, plan, reason, out)
    return 0 if published and not left else 1


def _record_stop(store: SweepStore, launch: Launch, disturbed: TrialResult | None, reason: str) -> None:
    """The result of the trial, where it was the stop that ended it. `disturbed`: of one that was measured again, what stays."""
    now, ended = time.time(), readable_result(store, launch.key)
    if ended is None or ended.outcome in (Outcome.CRASHED, Outcome.INFRA, Outcome.CANCELLED):
        cancelled = TrialResult(
            key=launch.key, attempt=launch.attempt, outcome=Outcome.CANCELLED, reason=reason, started_at=now, finished_at=now
        )
        ended = disturbed or cancelled
    store.save_result(ended)  # also one that stays: its file may hold what the stopped attempt wrote over it
    replaces_nothing(store.trial_dir(launch.key))


def _launcher(pools: Mapping[str, Pool], trial: Trial) -> launchers.Launcher:
    return launchers.for_pool(find_pool(pools, trial.pool))


def _publish(store: SweepStore, plan: Plan, reason: str, out: Console) -> bool:
    """Say in MLflow that the trials were stopped. False, and said, where it cannot be told: such as a damaged database."""
    prepare_environment()
    from tasks.tracking.client import why

    try:
        from tasks.tracking.projection import publish_sweep

        publish_sweep(store, plan, [], reason, wait_s=10.0)
    except Exception as error:
        told = f"MLflow was not told: {why(error)}; `sweep resume {store.sweep_id}` tells it once it can be written"
        out.print(told, highlight=False, markup=False, soft_wrap=True)
        return False
    return True


def _status(store: SweepStore) -> Status | None:
    """How a flow has ended; None where that cannot be read either."""
    try:
        return store.load_status()
    except DamagedFile:
        return None
