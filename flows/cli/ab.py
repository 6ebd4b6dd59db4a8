"""The command for pull requests: one side against the other, in turns, until it is decided."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.ab_changed import run_changed
from flows.cli.ab_comment import STDOUT, check_comment_file, write_comment
from flows.cli.options import (
    SUITE_HELP,
    OnlyOption,
    PoolOption,
    PoolWaitOption,
    ProfileOption,
    SetOption,
    app,
    clean_errors,
    err,
    out,
    suite_names,
)
from flows.cli.start_sweep import request_of, start, tell

DEFAULT_SUITE = "bridgetower"
SIDE_HELP = "a commit, branch or tag (worktree: the code here); env:NAME: an environment; or key=value[,key=value]: settings"


@app.command(
    epilog="Examples: sweep ab main HEAD --suite bridgetower --only precision=bf16 · sweep ab env:torch-2.12 env:torch-2.13 · "
    "sweep ab compile=none compile=inductor --suite synthetic --budget 5m · sweep ab main HEAD --changed --markdown comment.md. "
    "Exit status: 0 B is the same or faster; 3 slower; 4 undecided; 1 and 2 as for every sweep.",
)
@clean_errors
def ab(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help="what is compared with A: of the same kind")],
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            help=f"{SUITE_HELP}; {DEFAULT_SUITE} if not given, with --changed all suites (repeat for more)",
            autocompletion=suite_names,
        ),
    ] = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="only cells whose code differs between the commits A and B; where none does, exit status 0 at once"),
    ] = False,
    profile: ProfileOption = "auto",
    all_: Annotated[bool, typer.Option("--all", help="all cells; else the suite's baseline cell, or those that --only keeps")] = False,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="no round starts that would not end by then: 20m, 1h30m")] = "20m",
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="write a comment for a pull request; - writes it to standard output")
    ] = None,
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    pool_wait: PoolWaitOption = None,
) -> None:
    """Compare B with A, cell by cell: both in turns on the same pool, one trial at a time, until each comparison is decided."""
    from tasks.report.text_format import plural
    from tasks.rounds.ab_plan import plan_ab

    if markdown is not None:
        check_comment_file(markdown)
    request = request_of(_only_suite(suite, changed=changed), profile, pool, set_, only, budget=budget, until_decided=True)
    request = request.model_copy(update={"pool_wait_s": pool_wait})
    if changed:
        raise typer.Exit(run_changed(request, a, b, suite or [], every=all_, markdown=markdown))
    plan = plan_ab(request, a, b, every=all_, say=tell)
    cells = sum(not trial.reference for trial in plan.trials) // 2
    tell(f"A/B: B ({b}) against A ({a}), {plural(cells, 'cell')} of {plan.name}")
    status = start(plan, page=err if markdown == STDOUT else out)
    if markdown is not None:
        _comment(markdown, plan.sweep_id)
    raise typer.Exit(status)


def _only_suite(named: list[str] | None, *, changed: bool) -> str:
    """The suite; with `changed` there may be several, or none, which --changed looks for itself. Raises ConfigError."""
    from experiments.config.errors import ConfigError

    if named and len(named) > 1 and not changed:
        raise ConfigError.one("--suite", None, "", f"is given {len(named)} times", "name one; with --changed there may be several")
    return named[0] if named else DEFAULT_SUITE


def _comment(name: str, sweep_id: str) -> None:
    """Write the comment. A failure changes no exit status: that is the comparison's, and `sweep report` writes the comment again."""
    from experiments.config.errors import UserError
    from tasks.sweep.store import SweepStore

    try:
        write_comment(name, SweepStore(sweep_id))
    except (UserError, OSError) as error:
        tell(f"no comment: {error}; `sweep report {sweep_id} --markdown FILE` writes it again")
