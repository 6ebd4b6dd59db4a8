"""The trials of a sweep whose plan grows while it runs: what comes next depends on what was measured and how much time is left."""

from __future__ import annotations

import time

from flows.runtime.schedule import run_trials
from flows.runtime.session import Session
from tasks.rounds.growth import More, most_trials, round_note, seconds_run


def run_rounds(session: Session, more: More) -> None:
    """Run what the plan holds, then what `more` adds to it, round by round, until it adds nothing. A round that began is finished before
    the next, by a later flow where a deadline cuts it.

    The arms of an A/A sweep, the sides of an A/B sweep and the settings of a race run one at a time in the plan's order, whatever slots
    there are. What trials took in earlier flows counts as time: a resumed sweep goes on where it was. What the sweep waits for slots that
    others hold does not.
    """
    before, began = seconds_run(session.store, session.plan), time.monotonic()
    session.ran_s = lambda: _ran_s(session, before + time.monotonic() - began - session.waits.seconds)
    in_turns, due = any((session.plan.aa, session.plan.ab, session.plan.race)), True
    while True:
        if due:
            session.progress.note = round_note(session.plan)
            session.progress.set_growth(most_trials(session.plan))
            run_trials(session, in_turns=in_turns)
        if session.stop.is_set() or _is_cut(session):
            return
        plan = more(session.store, session.plan, session.ran_s())
        if plan is None:
            return
        due = len(plan.trials) > len(session.plan.trials)
        session.extend(plan)


def _is_cut(session: Session) -> bool:
    """Whether time left out trials of this round: a later flow ends it first, and a round of the others would be in the way."""
    if session.searches.cut:
        return True
    states = session.store.states(session.plan)
    return session.deadline is not None and any(outcome is None for outcome in states.values())


def _ran_s(session: Session, ran_s: float) -> float:
    """For how long the trials of a sweep with a budget are taken to have run, s: so long that no more is left than until its deadline."""
    if session.deadline is None or session.plan.decide is None:
        return ran_s
    return max(ran_s, session.plan.decide.budget_s - session.deadline.left_s)
