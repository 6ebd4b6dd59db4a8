"""Which trial goes when: in the sweep's interleaved order, as many at once on a pool as it takes, pools side by side."""

from __future__ import annotations

import queue
from collections import deque
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed
from prefect.utilities.annotations import quote

from experiments.trial import Outcome, Trial
from flows.runtime.session import Session


def run_trials(session: Session) -> None:
    """Run every trial that has no final result. One trial that fails never stops the others."""
    waiting: dict[str, deque[Trial]] = {}
    for trial in session.to_do():
        waiting.setdefault(trial.pool, deque()).append(trial)
    free = {name: session.places(name) for name in waiting}
    ended: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    running = 0
    while (running or any(waiting.values())) and not (session.stop.is_set() and not running):
        for name, trials in waiting.items():
            while trials and free[name] >= session.width(trials[0]) and not session.stop.is_set():
                trial = trials.popleft()
                free[name] -= session.width(trial)
                running += 1
                future = run.submit(quote(session), quote(trial), trial.name)  # type: ignore[call-overload]  # quoted: not searched for futures
                future.add_done_callback(lambda _, trial=trial: ended.put(trial))
        try:
            over = ended.get(timeout=0.5)  # wakes up for Ctrl-C and a stop
        except queue.Empty:
            continue
        free[over.pool] += session.width(over)
        running -= 1


@task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def run(session: Session, trial: Trial, name: str) -> State[Any]:
    """One trial as a task run: its log, its outcome as the run's state."""
    result = session.run(trial)
    if result.outcome.expected:
        return Completed(name="Completed" if result.outcome == "ok" else str(result.outcome), message=result.reason)
    if result.outcome is Outcome.CANCELLED:
        return Cancelled(message=result.reason)
    return Failed(name=str(result.outcome), message=result.reason)
