"""Which trial goes when: in the sweep's interleaved order, as many at once on a pool as it has slots, pools side by side where they are
not the same nodes."""

from __future__ import annotations

import queue
from collections import deque

from prefect.utilities.annotations import quote

from experiments.trial import Trial
from flows.runtime.session import Session
from tasks.sweep.prefect_tasks import make_dataset, run_trial

_LOOK_S = 0.5  # wakes up for Ctrl-C and a stop


def make_datasets(session: Session) -> None:
    """Draw each data set of the sweep, or make it of the user's files, once, before trials read it."""
    session.progress.note = "making the data set"
    for trial in {trial.data.uri: trial for trial in session.plan.trials if trial.data}.values():
        make_dataset(quote(trial))  # type: ignore[call-overload]
    session.progress.note = ""


def run_trials(session: Session, *, in_turns: bool = False) -> None:
    """Run every trial that has no final result, each as a task run. One trial that fails never stops the others.

    `in_turns`: one at a time in the plan's order, whatever slots there are.
    """
    waiting: dict[str, deque[Trial]] = {}  # by the nodes that the trials' pools are
    free: dict[str, int] = {}
    for trial in session.to_do():
        slots = session.pools[trial.pool].slots
        waiting.setdefault(slots.nodes, deque()).append(trial)
        free[slots.nodes] = max(free.get(slots.nodes, 0), slots.total)
    ended: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    running = 0
    while (running or any(waiting.values())) and not (session.stop.is_set() and not running):
        for nodes, trials in waiting.items():
            while trials and free[nodes] >= _needed(session, trials[0]) and not session.stop.is_set() and not (in_turns and running):
                trial = trials.popleft()
                if not session.in_time(trial):
                    continue
                free[nodes] -= _needed(session, trial)
                running += 1
                pool = session.pools[trial.pool]
                future = run_trial.submit(quote(pool), quote(trial), trial.name)  # type: ignore[call-overload]
                future.add_done_callback(lambda _, trial=trial: ended.put(trial))
        if not running:  # there is no time for any of the rest
            continue
        try:
            over = ended.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
        free[session.pools[over.pool].slots.nodes] += _needed(session, over)
        running -= 1


def _needed(session: Session, trial: Trial) -> int:
    return session.pools[trial.pool].slots.needed(trial)
