"""Sweeps that have ended, of which a resume would run nothing: no server is started for them, and what else could be done is said."""

from __future__ import annotations

from dataclasses import replace

from cluster.trial_layout import REPORT
from experiments.config.errors import DamagedFile
from flows.cli.show_comparison import shown_of
from flows.runtime.open_flow_runs import open_flow_runs
from tasks.rounds.growth import growth, seconds_run
from tasks.sweep.store import Plan, Status, SweepStore, exit_status
from tasks.sweep.what_is_left import what_is_left
from tasks.tracking.published import is_published


def ended_before(store: SweepStore, plan: Plan, server: str | None, *, more_asked: bool) -> Status | None:
    """How a sweep ended in which a flow would find nothing to do; None if there is something to do.

    The last flow came to its end, all trials are done and their files whole, all is published, and Prefect knows that it ended. That flow
    also said that no round is to come; where more is asked for (`--budget`), no round of it would start. Raises LaterJournal.
    """
    left = what_is_left(store, plan)
    states = {trial.key: result.outcome for trial, result in left.done}
    try:
        status = store.load_status()
    except DamagedFile:
        return None
    if left.begun or left.rest or left.damaged or status is None or status.status != exit_status(dict(states)):
        return None
    more = growth(plan) if more_asked else None
    if more is not None and more(store, plan, seconds_run(store, plan)) is not None:
        return None
    whole = (store.dir / REPORT).exists() and is_published(store, plan) and not open_flow_runs(store, server)
    return status if whole else None


def nothing_to_do(store: SweepStore, plan: Plan, *, more_asked: bool) -> str:
    """A line that says why there is nothing to do in such a sweep, and what could be done."""
    return f"nothing to do: every trial is done and in MLflow{_what_else(store, plan, more_asked=more_asked)}"


def _what_else(store: SweepStore, plan: Plan, *, more_asked: bool) -> str:
    """The next step that the report and `sweep show` give, where there is one; else what goes on all the same."""
    if plan.is_night:
        return ""
    if plan.aa is not None:
        return "; `sweep aa` measures more pairs in a sweep of their own"
    comparison = shown_of(store).comparison
    step = comparison.step if comparison is not None else ""
    told = f"; {step[:1].lower()}{step[1:]}" if step else ""
    if plan.race is not None:
        return f", and no other round fits{told}" if step else ", and the race is decided; `sweep tune` starts another"
    if step and not more_asked:
        return told
    from tasks.report.answer import HOPELESS

    hopeless = comparison is not None and any(HOPELESS in line for line in comparison.headline)
    return _of_rounds(store, plan, told, more_asked=more_asked, hopeless=hopeless)


def _of_rounds(store: SweepStore, plan: Plan, told: str, *, more_asked: bool, hopeless: bool) -> str:
    from tasks.analysis.looks import undecided_of
    from tasks.analysis.results import load_sweep

    sweep = replace(load_sweep(store.dir), plan=plan)
    undecided = undecided_of(sweep)
    emulated = bool(sweep.rows) and all(row.emulated for row in sweep.rows)
    if plan.has_all_rounds:
        return f", and it has had all rounds that campaign {plan.campaign} gives it (`rounds.most`)"
    more = f"sweep resume {store.sweep_id} --budget 20m"
    if more_asked and (undecided or not (plan.decide and plan.decide.until_decided)):
        return ", and no other round can be added: `limit` in the suite says how many trials it may have"
    if told:
        return told
    if hopeless or (undecided and plan.decide is not None and plan.decide.looks and not emulated):
        return ", and no sensible number of further rounds would decide what is open"
    if undecided:
        of_all = plan.decide is not None and not plan.decide.until_decided  # else a resume with a budget pursues only what is undecided
        return f"; `{more}{' --until-decided' if of_all else ''}` goes on with what is undecided"
    return f", and no comparison is undecided; `{more} --no-until-decided` measures all cells in further rounds"
