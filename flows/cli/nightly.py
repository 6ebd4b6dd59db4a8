"""The commands about nights: run one, list them, accept a change, find the commit behind it."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import JsonOption, PoolOption, app, clean_errors, err, out, print_json


def _names() -> list[str]:
    from experiments.regression.definition import nights

    return list(nights())


NightName = Annotated[str, typer.Argument(help="a nightly definition: a file in experiments/nightly", autocompletion=_names)]
NameOption = Annotated[str, typer.Option("--name", help="the nightly definition", autocompletion=_names)]
CellArgument = Annotated[str, typer.Argument(help="a cell of the nightly: its id, or words of its name that fit no other")]


@app.command(epilog="Examples: sweep nightly · sweep nightly --plan --budget 30m · sweep nightly regression --date 2026-11-21")
@clean_errors
def nightly(
    name: NightName = "regression",
    date: Annotated[str | None, typer.Option(help="the night, as 2026-11-21; today (UTC) if not given")] = None,
    budget: Annotated[str | None, typer.Option(help="time for the whole night, such as 2h or 90m; else the definition's")] = None,
    pool: PoolOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="show what would be measured, how long it takes and what is dropped")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run tonight's regression sweep now, or go on with it; exit status 3 if something got worse. One sweep for each date."""
    from experiments.config.duration import option_seconds
    from experiments.regression.definition import load_night
    from tasks.nightly.store import NightStore, today

    definition = load_night(name)
    night = date or today()
    NightStore(definition.nightly).check_opens(night)
    budget_s = definition.budget_s if budget is None else option_seconds("--budget", budget)
    if plan:
        from flows.cli import show_night
        from tasks.nightly.plan import empty_night, plan_night

        sweep, planned = plan_night(definition, empty_night(definition.nightly, night, budget_s), pool or [])
        print_json(show_night.plan_json(definition, sweep, planned)) if as_json else show_night.plan(out, definition, sweep, planned)
        return
    from flows.cli.run_night import run_night

    status = run_night(name, definition.nightly, night, budget, pool or [], err if as_json else out, err)
    if as_json:
        from tasks.nightly.store import night_json

        print_json(night_json(NightStore(definition.nightly).load(night)))
    raise typer.Exit(status)


@app.command(epilog="Examples: sweep nights · sweep nights --json")
@clean_errors
def nights(
    name: Annotated[str | None, typer.Argument(help="a nightly definition; all if not given", autocompletion=_names)] = None,
    date: Annotated[str | None, typer.Option(help="show the verdicts of this night")] = None,
    as_json: JsonOption = False,
) -> None:
    """The nights on this machine and their verdicts, newest first."""
    from flows.cli import show_night
    from tasks.nightly.store import NightStore, night_json

    if date is None:
        rows = show_night.night_rows(name)
        print_json(rows) if as_json else show_night.nights(out, rows)
        return
    store = NightStore(name or "regression")
    night = store.load(date)
    print_json(night_json(night)) if as_json else show_night.show_night(out, store, night)


@app.command(epilog="Example: sweep accept 'synthetic cpu' --note 'the new tokenizer is worth it'")
@clean_errors
def accept(
    cell: CellArgument,
    metric: Annotated[str | None, typer.Option(help="only this metric; else every one that changed")] = None,
    date: Annotated[str | None, typer.Option(help="the night whose verdict is accepted; the last one if not given")] = None,
    note: Annotated[str, typer.Option(help="why, for the record")] = "",
    name: NameOption = "regression",
) -> None:
    """Make a change the new baseline: the nights from its first on are a new segment of the cell's history."""
    from tasks.nightly.accept import accept_change

    for line in accept_change(name, cell, metric, date, note):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command(epilog="Example: sweep bisect 'bridgetower MP-0' v1.2 main --most 20")
@clean_errors
def bisect(
    cell: CellArgument,
    good: Annotated[str, typer.Argument(help="a git commit at which the cell was as it should be")],
    bad: Annotated[str, typer.Argument(help="a later commit at which it is not")],
    metric: Annotated[str | None, typer.Option(help="what is judged; else the cell's first metric")] = None,
    most: Annotated[int, typer.Option(min=3, max=100, help="most pairs of trials for one decision")] = 12,
    name: NameOption = "regression",
    as_json: JsonOption = False,
) -> None:
    """Find the commit that made a cell worse: at each step fresh processes of two commits by turns, until their difference is clear.

    Interrupted, the same command goes on with the pairs that it has measured.
    """
    from flows.cli.bisect import run_bisect

    bisection = run_bisect(name, cell, good, bad, metric, most, err)
    if bisection is None:
        raise typer.Exit(1)
    print_json(bisection.as_json()) if as_json else out.print(bisection.sentence, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(0 if bisection.commit else 1)
