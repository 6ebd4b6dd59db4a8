"""The commands about A/A pairs: run them, list what they have shown."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import (
    JsonOption,
    OnlyOption,
    PoolOption,
    PoolWaitOption,
    ProfileOption,
    SetOption,
    SuiteName,
    app,
    clean_errors,
    err,
    out,
    print_json,
)
from flows.cli.start_sweep import request_of, start


@app.command(epilog="Examples: sweep aa synthetic --profile smoke --pool cpu --pairs 200 · sweep aa bridgetower --pool h200 --minutes 5")
@clean_errors
def aa(
    suite: SuiteName,
    profile: ProfileOption = "auto",
    pairs: Annotated[
        int | None, typer.Option("--pairs", min=1, max=1000, help="how many pairs, at most; 20 if not given, 1000 with --minutes")
    ] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0.01, help="start no pair once trials have run for so long")] = None,
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    pool_wait: PoolWaitOption = None,
) -> None:
    """Run one cell against itself, in turns: how often the intervals and verdicts on its device are right. Takes the suite's baseline
    cell, or the first that --only leaves."""
    from tasks.sweep.aa_plan import plan_aa

    request = request_of(suite, profile, pool, set_, only).model_copy(update={"pool_wait_s": pool_wait})
    plan = plan_aa(request, pairs=pairs, minutes=minutes)
    err.print(f"A/A: {plan.trials[0].name.removesuffix(' · A · #1')} against itself", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(start(plan))


@app.command(epilog="Examples: sweep certificates · sweep certificates --json")
@clean_errors
def certificates(as_json: JsonOption = False) -> None:
    """What A/A pairs have shown of each device here: how often its intervals covered, how many verdicts were false."""
    from experiments.config.paths import runs_root
    from flows.cli import show_certificates
    from tasks.analysis.certificates import read_certificates
    from tasks.sweep.store import readable_plans

    known, problems = read_certificates(runs_root())
    for problem in problems:
        err.print(f"[yellow]{problem}[/]", highlight=False, soft_wrap=True)
    if as_json:
        print_json([one.model_dump() for one in known.values()])
    elif known:
        show_certificates.print_certificates(out, list(known.values()))
    elif not problems:
        show_certificates.print_none(out, [store.sweep_id for store, plan in readable_plans() if plan.aa is not None])
