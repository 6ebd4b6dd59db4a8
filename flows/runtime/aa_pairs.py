"""The trials of an A/A sweep: one at a time, and as many pairs as there is time for."""

from __future__ import annotations

import time

from flows.runtime.schedule import run_trials
from flows.runtime.session import Session
from tasks.sweep.aa_plan import one_more_pair, seconds_run


def run_pairs(session: Session) -> None:
    """Run what the plan holds, then add pair by pair until all were run or the time is over. A pair that began is always finished.

    What trials took in earlier flows counts as time: a resumed sweep goes on where it was.
    """
    before, began = seconds_run(session.store, session.plan), time.monotonic()
    run_trials(session, in_turns=True)
    while not session.stop.is_set():
        plan = one_more_pair(session.store, session.plan, before + time.monotonic() - began)
        if plan is None:
            return
        session.extend(plan)
        run_trials(session, in_turns=True)
