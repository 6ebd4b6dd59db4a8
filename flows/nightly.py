"""The flow `nightly`: claim the date, measure, measure again in pairs of commits what looks changed, bisect, decide, report, notify.

Composition only.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from experiments.config.duration import seconds
from experiments.regression.definition import load_night
from flows.runtime import artifacts, events, prefect_runs
from flows.runtime.progress import CURRENT, SweepProgress
from flows.runtime.schedule import make_datasets, run_trials
from flows.runtime.session import Session
from flows.runtime.stopping import until_stopped
from tasks.nightly import prefect_tasks
from tasks.nightly.close import close_unfinished
from tasks.nightly.history import HistoryError
from tasks.nightly.night_bisection import bisect_night
from tasks.nightly.night_run import NightRun, start_or_resume
from tasks.nightly.repeats import more_pairs, more_repeats
from tasks.nightly.report import headline, markdown
from tasks.nightly.store import PAIRED, NightStore, today
from tasks.sweep.store import Plan, SweepBusy, SweepStore, exit_status

REGRESSED = "Regressed"  # Prefect's name of the failed state, for automations
REGRESSION_STATUS = 3  # exit status of `sweep nightly` where something got worse


@flow(name="nightly", flow_run_name="{name}", persist_result=False)
def nightly(name: str = "regression", date: str | None = None, budget: str | None = None, pools: list[str] | None = None) -> State[Any]:
    """Measure a night's cells, compare each with its history, and say what is slower.

    A date has one sweep, however often it is submitted. A second submission finds it finished, or running; an interrupted one is continued,
    and one that was judged but not told is told.

    Args:
        name: a nightly definition, as in experiments/nightly
        date: the night, as 2026-11-21; null is today in UTC
        budget: time for the whole night, such as 2h; null is the definition's. A night that is planned keeps its own
        pools: use these pools instead of the definition's
    """
    log = get_run_logger()
    definition = load_night(name)
    nights = NightStore(definition.nightly)
    nights.check_opens(date or today())
    budget_s = seconds(budget) if budget else definition.budget_s
    night, opened = nights.claim(date or today(), budget_s)
    prefect_runs.rename(str(flow_run.id), f"{night.name} {night.date}", log)
    sweep = SweepStore(night.sweep_id)
    try:
        with sweep.lease():
            night = nights.load(night.date)
            if night.over:
                log.info("night %s was already run, as %s", night.date, night.sweep_id)
                return Completed(name="Skipped", message=f"night {night.date} of {night.name} was already run, as sweep {night.sweep_id}")
            if not opened:
                log.info("going on with night %s, sweep %s", night.date, night.sweep_id)
            nights.changes()  # raises now what the verdicts would rest on
            unfinished = close_unfinished(nights, night.date)
            run = start_or_resume(definition, nights, night, sweep, pools or [], budget_s)
            prefect_runs.reconcile(sweep, log)
            sweep.add_flow_run(str(flow_run.id))
            progress = CURRENT.get() or SweepProgress()
            progress.fill(run.plan.trials)
            session = Session(sweep, run.plan, progress, log)
            run.waits = session.waits
            run.remark(*unfinished)
            interruption = None if night.closed else until_stopped(session, lambda: _measure(run, session))
            return _finish(run, session, interruption)
    except SweepBusy as error:
        log.info("%s", error)
        return Completed(name="Skipped", message=f"night {night.date} of {night.name} is being run: {error}")


def _measure(run: NightRun, session: Session) -> None:
    """Every cell for the screen; pairs of what looks changed, tonight's commit against a good one; more repeats of what cannot be paired;
    then the commit behind what got worse. All as long as the budget lasts."""
    make_datasets(session)
    run_trials(session, in_turns=any(trial.labels["night.role"] == PAIRED for trial in run.plan.trials))  # pairs of an interrupted night
    try:
        prefect_tasks.read_past(run)
    except HistoryError as error:  # the measurements stay; the night gets its verdicts once MLflow answers
        session.log.warning("%s", error)
        return
    while not session.stop.is_set() and (pairs := more_pairs(run)) is not None:
        _measure_more(run, session, pairs, "pairs of two commits", in_turns=True)
    for repeats in run.definition.looks:
        plan = None if session.stop.is_set() else more_repeats(run, repeats)
        if plan is None:
            break
        _measure_more(run, session, plan, "more repeats of what is undecided")
    if run.definition.bisect and not session.stop.is_set():
        looking = "looking for the commit that made a cell worse"
        bisect_night(run, lambda plan: _measure_more(run, session, plan, looking, in_turns=True), session.stop.is_set)


def _measure_more(run: NightRun, session: Session, plan: Plan, note: str, *, in_turns: bool = False) -> None:
    """Run what the plan has beyond the night's. `note`: for who watches; `in_turns`: one trial at a time, in the plan's order."""
    run.plan, session.progress.note = plan, note
    session.extend(plan)
    run_trials(session, in_turns=in_turns)


def _finish(run: NightRun, session: Session, error: BaseException | None) -> State[Any]:
    """Publish the sweep, then decide, report and notify unless the night was interrupted. Return how it went, or raise the interruption."""
    problem = session.publish_and_report()
    status = 1 if problem or error is not None else exit_status(run.sweep.states(run.plan))
    if error is not None or session.stop.is_set():
        message = f"night {run.night.date} was interrupted; the next `sweep nightly` of that date goes on with it"
        session.end(1, message)
        if error is not None:
            raise error
        return Failed(message=message)
    try:
        prefect_tasks.read_past(run)
    except HistoryError as failure:
        session.end(1, str(failure))
        return Failed(message=f"{failure}; `sweep nightly {run.night.name} --date {run.night.date}` judges it")
    if session.waited:
        run.remark(f"The night's sweep: {session.waited}.")
    prefect_tasks.decide(run)
    _tell(run)
    not_told = [remark for remark in run.night.remarks if remark.startswith("Not told")]
    problems = [problem, *not_told] if problem else not_told
    message = headline(run.night) + (f"; {'; '.join(problems)}" if problems else "")
    worse = bool(run.night.worse())
    session.end(REGRESSION_STATUS if worse and status != 1 else status, message)
    if worse:
        return Failed(name=REGRESSED, message=message)
    return Completed(message=message) if status == 0 and not problems else Failed(message=message)


def _tell(run: NightRun) -> None:
    """Report, MLflow, Prefect's artifact and events, and one message."""
    _, page = prefect_tasks.report(run)
    links = [("report", page.as_uri()), *prefect_tasks.publish(run, page)]
    nights = [night for night in run.nights.all() if night.date <= run.night.date]
    artifacts.night(run.night, markdown(run.night, nights, run.nights.changes()))
    events.regressed(run.night, page.as_uri())
    if flow_run_id := str(flow_run.id or ""):
        links.append(("Prefect flow run", prefect_runs.page(flow_run_id)))
    prefect_tasks.tell(run, links)
