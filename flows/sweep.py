"""The flow `sweep`: plan, data set, every trial on its pool, MLflow, report. Composition only; each step is a task in tasks/."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from experiments.config.duration import option_seconds
from flows.runtime import handover, prefect_runs
from flows.runtime.progress import CURRENT, SweepProgress
from flows.runtime.rounds import run_rounds
from flows.runtime.schedule import make_datasets, run_trials
from flows.runtime.session import Session
from flows.runtime.stopping import until_stopped
from tasks.rounds.budget import gone_on_with
from tasks.rounds.growth import growth
from tasks.sweep import deadline
from tasks.sweep.budget import check_budget
from tasks.sweep.plan import check_ready, make_plan
from tasks.sweep.store import Plan, Request, SweepStore, exit_status, new_sweep_id
from tasks.sweep.variants import Say

_NAMES = {0: "every trial ended as expected", 1: "the sweep is incomplete", 2: "some trials failed"}


@flow(name="sweep", flow_run_name="{suite}", persist_result=False)
def sweep(
    suite: str,
    profile: str = "auto",
    pools: list[str] | None = None,
    set: dict[str, Any] | None = None,
    only: dict[str, list[Any]] | None = None,
    repeats: int | None = None,
    sweep_id: str | None = None,
    pool_wait_s: float | None = None,
    budget: str | None = None,
    until_decided: bool | None = None,
) -> State[Any]:
    """Run every trial of a suite's matrix, or the rest of a sweep that was interrupted.

    Args:
        suite: the suite's name (`sweep suites` lists them) or the path of a YAML file
        profile: a profile of the suite; `full` is the suite as written; `auto` takes `full` where an accelerator pool answers, else `smoke`
        pools: use these pools instead of the suite's
        set: workload parameters to fix, as in {"steps": 50}
        only: keep only cells with these axis values, as in {"precision": ["bf16"]}
        repeats: how often each cell is measured
        sweep_id: go on with this sweep; what is done in it is not run again
        budget: such as 25m: rounds of all cells go on while another fits; with `sweep_id`, so much more time for that sweep
        until_decided: cells whose comparison is decided take part in no more rounds; null: as the suite says
        pool_wait_s: how long trials wait for a pool that is down before they end as infra; null: each pool's own `wait_s`
    """
    request = Request(
        suite=suite,
        profile=profile,
        pools=pools or [],
        set=set or {},
        only=only or {},
        repeats=repeats,
        budget_s=None if budget is None else option_seconds("budget", budget),
        until_decided=until_decided,
        pool_wait_s=pool_wait_s,
    )
    store = SweepStore(sweep_id or new_sweep_id(_stem(suite)))
    handed = handover.CURRENT.get()
    with store.lease() if handed is None else nullcontext():
        plan = load_or_plan(store, request, get_run_logger().info)
        store.clear_status()
        prefect_runs.reconcile(store, get_run_logger())
        store.add_flow_run(str(flow_run.id))
        prefect_runs.rename(str(flow_run.id), store.sweep_id, get_run_logger())
        progress = CURRENT.get() or SweepProgress()
        progress.fill(plan.trials)
        begun = handed.head_start if handed else None
        session = Session(store, plan, progress, get_run_logger(), pool_wait_s, begun, deadline.CURRENT.get())
        return finish(session, until_stopped(session, lambda: _work(session)))


def load_or_plan(store: SweepStore, request: Request, say: Say = lambda text: None) -> Plan:
    """The sweep's plan under today's code and data; a new one if the sweep is new. Written before anything starts.

    The request's budget is added to a sweep that exists.
    """
    if store.exists():
        plan = gone_on_with(store, request.budget_s, request.until_decided, say)
    else:
        plan, _ = make_plan(request, store.sweep_id, say=say)
        check_ready(plan)
        check_budget(plan)
    store.save_plan(plan)
    return plan


def _work(session: Session) -> None:
    make_datasets(session)
    if (more := growth(session.plan)) is not None:
        run_rounds(session, more)
    else:
        run_trials(session)
    if (session.deadline is not None or session.searches.cut) and not session.stop.is_set():
        session.cut()


def finish(session: Session, error: BaseException | None) -> State[Any]:
    """Publish what there is, whatever happened; then say how it went, or pass on what interrupted it."""
    problem = session.publish_and_report()
    states = session.store.states(session.plan)
    # Between two rounds all trials that are planned have ended. What all crashed gets no other round, so no stop keeps one from it.
    cut_off = session.stop.is_set() and session.given_up is None and growth(session.plan) is not None
    of_trials = 1 if cut_off or error is not None else exit_status(states)
    status = 1 if problem else of_trials
    counts: dict[str, int] = {}
    for outcome in states.values():
        name = str(outcome) if outcome else "not run"
        counts[name] = counts.get(name, 0) + 1
    how = _NAMES[of_trials]  # what could not be published follows; its trials may all have ended
    if session.plan.cut:
        all_that, rest = ("measured", "not measured") if session.searched else ("began", "not begun")
        how, counts[f"{rest} for want of time"] = how.replace("every trial", f"every trial that {all_that}"), len(session.plan.cut)
    message = f"{session.store.sweep_id}: {how} ({', '.join(f'{n} {name}' for name, n in sorted(counts.items()))})"
    message = "; ".join([message, *filter(None, [session.given_up, session.searched, session.waited, problem])])
    session.progress.note = message
    session.end(status, message)
    if error is not None:
        raise error
    said = f"{message}. {session.found}" if session.found else message  # what who watches the flow run reads last
    session.log.info("%s", said)
    return Completed(message=said) if status == 0 else Failed(message=said)


def _stem(suite: str) -> str:
    return suite.rsplit("/", 1)[-1].removesuffix(".yaml").removesuffix(".yml")
