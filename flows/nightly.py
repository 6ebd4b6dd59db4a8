"""The flow `nightly`: claim the date, measure the cells, look again at what is undecided, judge, report, tell. Composition only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from experiments.regression.definition import NightFile, load_night, seconds
from experiments.regression.history_segments import accepts_itself
from flows.runtime import artifacts, prefect_runs
from flows.runtime.progress import CURRENT, SweepProgress
from flows.runtime.schedule import draw_datasets, run_trials
from flows.runtime.session import Session
from flows.runtime.stopping import until_stopped
from tasks.nightly import notify
from tasks.nightly.accept import accepted
from tasks.nightly.history import History, HistoryError, past_nights, tonight
from tasks.nightly.plan import plan_night, round_seconds, templates, with_repeats
from tasks.nightly.report import headline, markdown, message, write_night
from tasks.nightly.store import Dropped, Judgement, Night, NightStore, today, verdicts_of
from tasks.nightly.tracking import publish_night
from tasks.nightly.verdicts import NightVerdicts
from tasks.sweep.plan import renew
from tasks.sweep.store import Plan, SweepBusy, SweepStore, exit_status

REGRESSED = "Regressed"  # Prefect's name of the failed state, for automations
REGRESSION_STATUS = 3  # exit status of `sweep nightly` where something got worse


@dataclass
class Work:
    """A night in the making."""

    definition: NightFile
    store: NightStore
    night: Night
    session: Session
    pools: Sequence[str]
    began: float = field(default_factory=time.monotonic)

    @property
    def plan(self) -> Plan:
        return self.session.plan

    def save(self, **changes: Any) -> None:
        self.night = self.night.model_copy(update=changes)
        self.store.save(self.night)


@flow(name="nightly", flow_run_name="{name}", persist_result=False)
def nightly(name: str = "regression", date: str | None = None, budget: str | None = None, pools: list[str] | None = None) -> State[Any]:
    """Measure a night's cells, compare each with its history, and say what is slower.

    One sweep for each date, however often it is submitted: a second one finds it done, or at work; an interrupted one is gone on with.

    Args:
        name: a nightly definition, as in experiments/nightly
        date: the night, as 2026-11-21; null is today in UTC
        budget: time for the whole night, such as 2h; null is the definition's
        pools: use these pools instead of the definition's
    """
    log = get_run_logger()
    definition = load_night(name)
    store = NightStore(definition.nightly)
    night, opened = store.claim(date or today(), seconds(budget) if budget else definition.budget_s)
    prefect_runs.rename(str(flow_run.id), f"{night.name} {night.date}", log)
    sweep_store = SweepStore(night.sweep_id)
    try:
        with sweep_store.lease():
            night = store.load(night.date)
            if night.closed:
                log.info("night %s was already run, as %s", night.date, night.sweep_id)
                return Completed(name="Skipped", message=f"night {night.date} of {night.name} was already run, as sweep {night.sweep_id}")
            if not opened:
                log.info("going on with night %s, sweep %s", night.date, night.sweep_id)
            remarks = _close_others(store, night.date)
            plan, night = _planned(definition, store, night, sweep_store, pools or [])
            prefect_runs.reconcile(sweep_store, log)
            sweep_store.add_flow_run(str(flow_run.id))
            progress = CURRENT.get() or SweepProgress()
            progress.fill(plan.trials)
            work = Work(definition, store, night, Session(sweep_store, plan, progress, log), pools or [])
            work.save(remarks=[*night.remarks, *remarks])
            return _finish(work, until_stopped(work.session, lambda: _measure(work)))
    except SweepBusy as error:
        log.info("%s", error)
        return Completed(name="Skipped", message=f"night {night.date} of {night.name} is being run: {error}")


def _planned(definition: NightFile, nights: NightStore, night: Night, store: SweepStore, pools: list[str]) -> tuple[Plan, Night]:
    if store.exists():
        plan = renew(store.load_plan())
    else:
        plan, night = plan_night(definition, night, pools)
        nights.save(night)  # first: a plan without its cells could not be judged
    store.save_plan(plan)
    return plan, night


def _close_others(store: NightStore, date: str) -> list[str]:
    """Nights before this one that nobody finished: they are closed as they are, with every cell that has no verdict as missed."""
    said = []
    for other in store.all():
        if other.closed or other.date >= date or SweepStore(other.sweep_id).is_held():
            continue
        judged = {item.cell for item in other.judgements if item.role == "history"}
        missed = [
            Dropped(cell=cell.cell, name=cell.name, why="the night was interrupted")
            for cell in other.cells
            if cell.role == "history" and cell.cell not in judged
        ]
        store.save(other.model_copy(update={"closed_at": time.time(), "missed": missed}))
        said.append(f"Night {other.date} was interrupted and never judged.")
    return said


def _measure(work: Work) -> None:
    """The first look, then more repeats of what is undecided, as long as the budget lasts."""
    session = work.session
    draw_datasets(session)
    run_trials(session)
    try:
        past = _past(work)
    except HistoryError as error:  # what was measured stays; it is judged once MLflow answers
        session.log.warning("%s", error)
        return
    for look in work.definition.looks:
        if session.stop.is_set():
            return
        judge, now = _judge(work, past)
        found, _ = judge.judgements(now)
        if not _look_again(work, judge.undecided(found), look):
            return
        run_trials(session)


def _look_again(work: Work, undecided: Sequence[tuple[str, str]], repeats: int) -> bool:
    """Plan more repeats of these cells and of their canaries; False if there is nothing to do or no time for it."""
    open_pools = {cell.pool for cell in work.night.cells if (cell.cell, cell.role) in undecided}
    cells = [
        cell for cell in work.night.cells if (cell.cell, cell.role) in undecided or (cell.role == "canary" and cell.pool in open_pools)
    ]
    if not undecided:
        return False
    plan = work.plan
    first = templates(plan)
    chosen = [first[cell.cell, cell.role] for cell in cells if (cell.cell, cell.role) in first]
    have = max((trial.repeat for trial in plan.trials if trial.cell in {template.cell for template in chosen}), default=0)
    took = round_seconds(_with_tonight(work, cells)) * (repeats - have)
    left = work.night.budget_s - (time.monotonic() - work.began)
    if took > left:
        names = ", ".join(cell.name for cell in cells if cell.role == "history")
        if names:
            work.save(
                remarks=[*work.night.remarks, f"No time for more repeats of {names}: {took:.0f} s wanted, {max(left, 0):.0f} s left."]
            )
        return False
    work.session.extend(with_repeats(plan, chosen, repeats))
    return True


def _with_tonight(work: Work, cells: Sequence[Any]) -> list[Any]:
    """Cells with what a trial of theirs took tonight."""
    took: dict[tuple[str, str], float] = {}
    for trial in work.plan.trials:
        result = work.session.store.result(trial.key)
        if result is not None:
            took[trial.labels["night.cell"], trial.labels["night.role"]] = result.finished_at - result.started_at
    return [cell.model_copy(update={"expected_s": took.get((cell.cell, cell.role), cell.expected_s)}) for cell in cells]


def _past(work: Work) -> History:
    return _task("history", lambda: past_nights(work.night.name, work.plan.name, work.night.date))  # type: ignore[no-any-return]


def _task(name: str, body: Callable[[], Any]) -> Any:
    return task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)(body)()


def _judge(work: Work, past: History) -> tuple[NightVerdicts, History]:
    judge = NightVerdicts(work.definition, work.night, past, work.store.all(), work.store.changes())
    return judge, tonight(work.session.store, work.plan)


def _finish(work: Work, error: BaseException | None) -> State[Any]:
    """Publish what there is; judge unless the night was interrupted; tell. Then say how it went, or pass on what interrupted it."""
    problem = work.session.publish_and_report()
    store = work.session.store
    status = 1 if problem or error is not None else exit_status(store.states(work.plan))
    if error is not None or work.session.stop.is_set():
        message = f"night {work.night.date} was interrupted; the next `sweep nightly` of that date goes on with it"
        store.save_status(1, message)
        if error is not None:
            raise error
        return Failed(message=message)
    try:
        past = _past(work)
        _task("judge", lambda: _verdicts(work, past))
        _task("report", lambda: _tell(work, past))
    except HistoryError as failure:
        store.save_status(1, str(failure))
        return Failed(message=f"{failure}; `sweep nightly {work.night.name} --date {work.night.date}` judges it")
    problems = [line for line in [problem, *[line for line in work.night.remarks if line.startswith("Not told")]] if line]
    message = headline(work.night) + (f"; {'; '.join(problems)}" if problems else "")
    worse = bool(work.night.worse())
    store.save_status(REGRESSION_STATUS if worse and status != 1 else status, message)
    if worse:
        return Failed(name=REGRESSED, message=message)
    return Completed(message=message) if status == 0 and not problems else Failed(message=message)


def _verdicts(work: Work, past: History) -> None:
    """Judge for good, note what was missed, accept what held long enough; the night is closed by this."""
    judge, now = _judge(work, past)
    found, nodes = judge.judgements(now)
    remarks = [*work.night.remarks, *judge.creep(now)]
    probes = {item.role: item.verdict for item in found if item.role in ("twin", "injected") and item.metric == _first_metric(work, item)}
    missed = [
        Dropped(cell=cell.cell, name=cell.name, why=_why_missed(work, cell.cell))
        for cell in work.night.cells
        if cell.role == "history" and not now.of(cell.cell, "history").get(work.night.date)
    ]
    work.save(judgements=found, nodes=nodes, probes=probes, missed=missed, remarks=remarks, closed_at=time.time())
    nights = work.store.all()
    for item in found:
        if item.role == "history":
            _accept_if_it_held(work, item, nights)


def _accept_if_it_held(work: Work, item: Judgement, nights: list[Night]) -> None:
    mine = (item.cell, item.metric)
    changes = [change for change in work.store.changes() if (change.cell, change.metric) == mine]
    since = accepts_itself(verdicts_of(nights, *mine), changes, work.night.date, work.definition.accept_after)
    if since is not None:
        work.store.accept(accepted(nights, item, since, work.night.date, "nights", f"held for {work.definition.accept_after} nights"))


def _first_metric(work: Work, item: Judgement) -> str:
    return next(cell.metrics[0] for cell in work.night.cells if (cell.cell, cell.role) == (item.cell, item.role))


def _why_missed(work: Work, cell: str) -> str:
    """How its trials ended."""
    ends = []
    for trial in work.plan.trials:
        if trial.labels["night.cell"] == cell and trial.labels["night.role"] == "history":
            result = work.session.store.result(trial.key)
            ends.append(str(result.outcome) if result else "not run")
    return ", ".join(dict.fromkeys(ends)) or "not planned"


def _tell(work: Work, past: History) -> None:
    """Report, MLflow, Prefect artifact, and one message."""
    now = tonight(work.session.store, work.plan)
    changes = work.store.changes()
    paths = write_night(work.store, work.definition, work.night, past, now, changes)
    nights = [night for night in work.store.all() if night.date <= work.night.date]
    links = [("report", paths[1].as_uri())]
    try:
        links += publish_night(work.night, work.plan, [*paths, paths[0].parent / "figures"], changes)
    except Exception as error:  # the night's own files are whole; MLflow only shows them
        work.session.log.warning("the night is not in MLflow: %s", error)
        work.save(remarks=[*work.night.remarks, f"The verdicts are not in MLflow ({type(error).__name__})."])
    artifacts.night(work.night, markdown(work.night, nights, changes))
    if run := str(flow_run.id or ""):
        links.append(("Prefect flow run", prefect_runs.page(run)))
    text = message(work.night, nights, changes, links)
    sent, problems = notify.send_all(work.definition.notify, work.night.notified, headline(work.night), text)
    for line in problems:
        work.session.log.error("%s", line)
    work.save(notified=sent, remarks=[*work.night.remarks, *(f"Not told: {line}." for line in problems)])
