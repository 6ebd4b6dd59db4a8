"""The command that looks for the best setting: a race in which settings drop out round by round."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import OnlyOption, PoolOption, PoolWaitOption, ProfileOption, SetOption, SuiteName, app, clean_errors, err
from flows.cli.start_sweep import request_of, start, tell


@app.command(
    epilog="Examples: sweep tune bridgetower --profile tune --maximise throughput --where 'peak_memory_bytes<=70GB' --parity --budget 2h · "
    "sweep tune synthetic --profile tune --maximise throughput --budget 2m",
)
@clean_errors
def tune(
    suite: SuiteName,
    budget: Annotated[
        str,
        typer.Option(
            "--budget", help="time for all trials: 90m, 2h; after the second round none starts that would not end by then", metavar="TIME"
        ),
    ],
    maximise: Annotated[str | None, typer.Option("--maximise", help="the metric that is to be high, such as throughput")] = None,
    minimise: Annotated[str | None, typer.Option("--minimise", help="or the one that is to be low, such as peak_memory_bytes")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="a limit that the winner keeps, such as 'latency_p99_s<=50ms' (repeat for more)", metavar="LIMIT"),
    ] = None,
    parity: Annotated[bool, typer.Option("--parity", help="settings whose loss is not that of their fp32 reference drop out")] = False,
    profile: ProfileOption = "auto",
    pool: PoolOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    pool_wait: PoolWaitOption = None,
) -> None:
    """Find the best setting of a suite: all run in the first rounds, and those that are surely behind, break a limit or fail drop out,
    until one is left, the rest are level, or time is up."""
    from experiments.config.duration import option_seconds
    from experiments.config.errors import ConfigError
    from tasks.report.text_format import plural
    from tasks.rounds.race_plan import plan_race
    from tasks.sweep.constraints import parse_constraint

    metric = maximise or minimise
    if metric is None or (maximise is not None and minimise is not None):
        given = "both are given" if metric else "neither is given"
        raise ConfigError.one("--maximise, --minimise", None, "", given, "give one of the two, with a metric")
    limits = [parse_constraint(text) for text in where or []]
    seconds = option_seconds("--budget", budget)
    request = request_of(suite, profile, pool, set_, only).model_copy(update={"pool_wait_s": pool_wait})
    plan = plan_race(request, metric=metric, maximise=maximise is not None, budget_s=seconds, where=limits, parity=parity, say=tell)
    settings, references = (sum(trial.reference is kind for trial in plan.trials) for kind in (False, True))
    beside = f", and {plural(references, 'reference')} for loss parity" if references else ""
    err.print(f"race of {plural(settings, 'setting')}{beside}", highlight=False)
    raise typer.Exit(start(plan))
