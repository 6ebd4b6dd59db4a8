"""Run the flow in this process for the command line: no server needed, the live table on the terminal, the exit status at the end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from cluster.pools.busy import Look, other_work
from cluster.pools.pool import load_pools
from experiments.config import duration
from experiments.config.errors import UserError
from experiments.spec.schema import MOST_ROUNDS
from experiments.trial import Outcome, Trial
from flows.cli import live_table
from flows.cli.nothing_to_do import ended_before, nothing_to_do
from flows.cli.show_comparison import print_comparison, print_where
from flows.cli.starting import TrialLook, starting
from flows.runtime import prefect_api
from flows.runtime.command_environment import prepare_environment
from flows.runtime.handover import CURRENT, Handover
from flows.runtime.interrupts import Terminated, heeded
from flows.runtime.prefect_server import OwnServer, PrefectServerError, own_server
from flows.runtime.progress import CURRENT as PROGRESS
from flows.runtime.progress import SweepProgress
from tasks.analysis.ab import SLOWER, UNDECIDED
from tasks.report.ab_summary import status_of
from tasks.report.continued import whole_command
from tasks.report.text_format import plural
from tasks.rounds.growth import seconds_run
from tasks.sweep.head_start import HeadStart, head_start
from tasks.sweep.plan import expected_seconds
from tasks.sweep.store import Plan, SweepStore, exit_status
from tasks.tracking.client import check_database

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

SEVERITY = (0, 2, 1)  # exit statuses, the worst last


class FlowEnd(NamedTuple):
    """How a flow ended. `finished`: it came to its end, whatever that was, and published what there is."""

    status: int
    message: str
    finished: bool


KEEP: ContextVar[ExitStack | None] = ContextVar("keep", default=None)  # where a command runs several sweeps: keeps their Prefect server
Run = Callable[[dict[str, float]], FlowEnd]  # the flow, told how long cells are expected to take, s


def run_sweep(
    plan: Plan,
    out: Console,
    err: Console,
    look: Look | None = None,
    *,
    budget: str | None = None,
    until_decided: bool | None = None,
    more: bool = False,
    go_on: str | None = None,
) -> int:
    """Run what is left of a planned and saved sweep; returns the exit status. Raises SweepBusy if another process works on it,
    and DamagedFile where MLflow's database cannot be read.

    `look`: at other work on this machine, where one has begun. `budget`: so much more time for it. `more`: the plan has time for more
    rounds than it had when its last flow ended. `go_on`: the command that goes on with it; None: `sweep resume`.
    """
    store, go_on = SweepStore(plan.sweep_id), go_on or resume_command(plan.sweep_id, budget, until_decided)
    server = prepare_environment()  # first: who holds a lease says which servers it uses
    with store.lease():
        check_database()
        store.tell_trials(plan)  # where no flow is needed for anything else
        asked = more or budget is not None or until_decided is not None
        if (ended := ended_before(store, plan, server, more_asked=asked)) is not None:
            end = FlowEnd(ended.status, ended.message, finished=True)
            err.print(nothing_to_do(store, plan, more_asked=asked), highlight=False, markup=False, soft_wrap=True)
        else:
            end = _run_held(store, plan, server, err, look, go_on, lambda expected: _run_flow(plan, expected, err, budget, until_decided))
    return _say_end(store, end, out, err, go_on)


def resume_command(sweep_id: str, budget: str | None, until_decided: bool | None) -> str:
    """What goes on with a sweep as the command did that was interrupted. Time that it gave is given again: without it what there had been
    no time for would run however long it takes, or not at all."""
    words = ["sweep", "resume", sweep_id, *(["--budget", budget] if budget is not None else [])]
    decided = {None: [], True: ["--until-decided"], False: ["--no-until-decided"]}[until_decided]
    return shlex.join([*words, *decided])


def _say_end(store: SweepStore, end: FlowEnd, out: Console, err: Console, go_on: str) -> int:
    """Print how the flow ended, and last what the sweep found in one line, to be pasted; returns the exit status, which what is on disk can
    only make worse. `go_on`: the command that goes on with it."""
    status = end.status
    line, states = "", dict[str, Outcome | None]()
    if end.finished:
        line = print_comparison(out, store)
        print_where(out, store)
        states = store.states(store.load_plan())
        status = max(status, exit_status(states), key=SEVERITY.index)
    if end.finished and status == 0:
        status = status_of(store.dir)  # what the trials found, once nothing is wrong with them
        if status:
            said = "a cell of B is worse" if status == SLOWER else "no cell of B is shown to be worse, and not all are decided"
            err.print(f"exit status {status}: {said}", highlight=False, soft_wrap=True)
    colour = {0: "green", 2: "yellow", UNDECIDED: "yellow"}.get(status, "red")
    err.print(f"[{colour}]{escape(end.message)}[/]", highlight=False, soft_wrap=True)
    if status == 1:
        err.print(f"go on with it: {go_on}", highlight=False, markup=False, soft_wrap=True)
    if line:
        out.print(f"{line}{_what_lacks(states)}", highlight=False, markup=False, soft_wrap=True)
    return status


def _what_lacks(states: dict[str, Outcome | None]) -> str:
    """What stands behind the line of a sweep that is not whole; empty of any other. `states`: of all its trials."""
    ended = sum(outcome is not None and outcome is not Outcome.CANCELLED for outcome in states.values())
    return "" if ended == len(states) else f"; incomplete: {ended} of {plural(len(states), 'trial')} ended"


def _run_held(store: SweepStore, plan: Plan, server: str | None, err: Console, look: Look | None, go_on: str, run: Run) -> FlowEnd:
    """Run a sweep whose lease this process holds. `server`: a Prefect server's URL. `go_on`: the command that goes on with it."""
    err.print(f"sweep [bold]{plan.sweep_id}[/]: {_size(store, plan)}, results in {store.dir}", highlight=False, soft_wrap=True)
    err.print(f"command: {whole_command(plan)}", highlight=False, markup=False, soft_wrap=True)
    _warn_of_other_work(plan, err, look)
    if server is not None:
        prefect_api.check(server)
    first: list[Trial] = []  # begun before the flow

    def running() -> list[Trial]:
        progress = PROGRESS.get()
        return [*first, *(progress.running() if progress else [])]

    try:
        with heeded(running, go_on), head_start(store, plan) as begun:
            first += [begun.trial] if begun else []
            expected = expected_seconds(plan)  # before Prefect, whose logging hides what this says of damaged sweeps
            with _prefect(store, server, begun, err):
                CURRENT.set(Handover(plan.sweep_id, begun))
                return run(expected)
    except (KeyboardInterrupt, Terminated):
        return end_of(None, None)
    except PrefectServerError as error:
        raise PrefectServerError(f"{error}; go on with the sweep: {go_on}") from error
    finally:
        CURRENT.set(None)


@contextmanager
def _prefect(store: SweepStore, server: str | None, begun: HeadStart | None, err: Console) -> Iterator[None]:
    """Have a Prefect server, `server` or one of this command's own, and the flow imported meanwhile. Raises PrefectServerError."""
    meanwhile = f"; meanwhile {escape(begun.trial.name)} begins on pool {begun.trial.pool}" if begun else ""
    if server is not None:
        err.print(f"Prefect: {server.removesuffix('/api')}{meanwhile}", highlight=False, soft_wrap=True)
    else:
        err.print(
            f"starting a Prefect server for this command (`make up` starts one that stays){meanwhile} ...", highlight=False, soft_wrap=True
        )
    with _server(KEEP.get()) if server is None else nullcontext() as own:
        if own is not None:
            os.environ["PREFECT_API_URL"] = own.url  # read when Prefect is imported
        with starting(err, TrialLook(begun.trial, store.trial_dir(begun.trial.key)) if begun else None) as say:
            say("importing Prefect and the flow")
            import flows.sweep  # noqa: F401 - takes two seconds, like the server

            if own is not None:
                say("the Prefect server creates its database and starts")
                own.wait()
        yield


def _server(keep: ExitStack | None) -> AbstractContextManager[OwnServer]:
    """A server of this command's own, which ends with the block, or with `keep`."""
    return own_server() if keep is None else nullcontext(keep.enter_context(own_server()))


def _size(store: SweepStore, plan: Plan) -> str:
    """15 trials; of a plan that grows, what makes it end: of its budget what is left, which is what a resume was given."""
    budget_s = plan.decide.budget_s if plan.decide else plan.race.budget_s if plan.race else None
    if budget_s is None:
        return plural(len(plan.trials), "trial")
    ran_s = seconds_run(store, plan)
    left = duration.text(budget_s - ran_s) if budget_s > ran_s else "no time"
    fits = f"until no other fits in {left}{' more' if ran_s else ''}"
    if plan.decide is None:
        settings = plural(len({trial.cell for trial in plan.trials if not trial.reference}), "setting")
        return f"rounds of {settings} until the race is decided, or {fits}"
    cells = plural(len({trial.cell for trial in plan.trials}), "cell")
    rounds = f"up to {plan.decide.most} rounds" if plan.decide.most < MOST_ROUNDS else "rounds"
    return f"{rounds} of {cells} {'until all comparisons are decided, or ' if plan.decide.until_decided else ''}{fits}"


def _warn_of_other_work(plan: Plan, err: Console, look: Look | None) -> None:
    """Say so where a pool's machine is busy: it is easier to wait now than to measure again."""
    pools = load_pools()
    for name in dict.fromkeys(trial.pool for trial in plan.trials):
        if name in pools and (found := other_work(pools[name], look)):
            err.print(f"[yellow]warning[/]: pool {name}: {escape(found)}", highlight=False, soft_wrap=True)


def _run_flow(plan: Plan, expected_s: dict[str, float], err: Console, budget: str | None, until_decided: bool | None) -> FlowEnd:
    """The flow, under the live table. Raises PrefectAway where it could not begin."""
    from flows.sweep import sweep

    progress = SweepProgress(plan.trials, expected_s, metric=plan.suite.report.metric)
    PROGRESS.set(progress)
    request = plan.request
    state: State[Any] | None = None
    over = False
    with suppress(KeyboardInterrupt, Terminated), live_table.show(progress, err, plan.suite):
        with prefect_api.not_needed_at_the_end(lambda: progress.ended is not None, err.print):
            state = sweep(
                suite=request.suite,
                profile=request.profile,
                pools=request.pools,
                set=request.set,
                only=request.only,
                repeats=request.repeats,
                sweep_id=plan.sweep_id,
                pool_wait_s=request.pool_wait_s,
                budget=budget,
                until_decided=until_decided,
                return_state=True,
            )
        over = True
    if over and state is None and progress.ended is not None:  # Prefect did not record it
        return FlowEnd(*progress.ended, finished=True)
    return end_of(progress.ended, state)


def end_of(ended: tuple[int, str] | None, state: State[Any] | None) -> FlowEnd:
    """How this process's flow ended. `ended`: exit status and message if it came to its end; `state`: its last one, None if interrupted.

    Only this flow is asked: status.json may be of an earlier one, or of another process that works on the sweep.
    """
    if ended is not None:
        whole = state is not None and (state.is_completed() or ended[0] != 0)
        return FlowEnd(ended[0] if whole else 1, ended[1], finished=True)
    if state is None:
        return FlowEnd(1, "interrupted before the flow came to its end; what was measured is kept", finished=False)
    return FlowEnd(1, f"the sweep could not be run: {_why(state)}", finished=False)


def _why(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(state.message or state.name)
