"""Which trial goes when: in the sweep's interleaved order, as many at once on a pool as it has slots, pools side by side."""

from __future__ import annotations

import queue
from collections import deque

from prefect.utilities.annotations import quote

from experiments.trial import Trial
from flows.runtime.session import Session
from tasks.sweep.prefect_tasks import draw_dataset, run_trial

_LOOK_S = 0.5  # wakes up for Ctrl-C and a stop


def draw_datasets(session: Session) -> None:
    """Draw each data set of the sweep once, before trials read it."""
    session.progress.note = "drawing the data set"
    for trial in {trial.data.uri: trial for trial in session.plan.trials if trial.data}.values():
        draw_dataset(trial.parameters)
    session.progress.note = ""


def run_trials(session: Session, *, in_turns: bool = False) -> None:
    """Run every trial that has no final result, each as a task run. One trial that fails never stops the others.

    `in_turns`: one at a time in the plan's order, whatever slots there are.
    """
    waiting: dict[str, deque[Trial]] = {}
    for trial in session.to_do():
        waiting.setdefault(trial.pool, deque()).append(trial)
    free = {name: session.pools[name].slots.total for name in waiting}
    ended: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    running = 0
    while (running or any(waiting.values())) and not (session.stop.is_set() and not running):
        for name, trials in waiting.items():
            pool = session.pools[name]
            while trials and free[name] >= pool.slots.needed(trials[0]) and not session.stop.is_set() and not (in_turns and running):
                trial = trials.popleft()
                if not session.in_time(trial):
                    continue
                free[name] -= pool.slots.needed(trial)
                running += 1
                future = run_trial.submit(quote(pool), quote(trial), trial.name)  # type: ignore[call-overload]
                future.add_done_callback(lambda _, trial=trial: ended.put(trial))
        if not running:  # there is no time for any of the rest
            continue
        try:
            over = ended.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
        free[over.pool] += session.pools[over.pool].slots.needed(over)
        running -= 1
