"""Which trial goes when: in the sweep's interleaved order, as many at once on a pool as it has slots, pools side by side where they are
not the same nodes. While a pool is down, those of the same nodes go on without it."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterable

from prefect.utilities.annotations import quote

from experiments.trial import Trial
from flows.runtime.session import Session
from tasks.sweep.pool_slots import PoolSlots
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
    total: dict[str, int] = {}  # slots of the nodes, as the pool has them that uses the most
    for to_do in session.to_do():
        slots = _slots(session, to_do)
        waiting.setdefault(slots.nodes, deque()).append(to_do)
        total[slots.nodes] = max(total.get(slots.nodes, 0), slots.total)
    ended: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    running: list[Trial] = []
    while (running or any(waiting.values())) and not (session.stop.is_set() and not running):
        for nodes, trials in waiting.items():
            while (trial := _next(session, trials)) and not session.stop.is_set() and not (in_turns and running):
                if _taken(session, running, nodes) + _slots(session, trial).needed(trial) > total[nodes]:
                    break
                trials.remove(trial)
                if not session.in_time(trial):
                    continue
                running.append(trial)
                pool = session.pools[trial.pool]
                future = run_trial.submit(quote(pool), quote(trial), trial.name)  # type: ignore[call-overload]
                future.add_done_callback(lambda _, trial=trial: ended.put(trial))
        if not running:  # there is no time for any of the rest
            continue
        try:
            running.remove(ended.get(timeout=_LOOK_S))
        except queue.Empty:
            continue


def _next(session: Session, trials: Iterable[Trial]) -> Trial | None:
    """The first trial whose pool is not down as far as those that run on it know: one of them waits for it, and the others would."""
    return next((trial for trial in trials if not _slots(session, trial).pool_is_down), None)


def _taken(session: Session, running: Iterable[Trial], nodes: str) -> int:
    """Slots of the nodes that are in use."""
    return sum(slots.taken_by(trial) for trial in running if (slots := _slots(session, trial)).nodes == nodes)


def _slots(session: Session, trial: Trial) -> PoolSlots:
    return session.pools[trial.pool].slots
