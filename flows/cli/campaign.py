"""The command of campaigns: sweep after sweep within a time, most valuable first, and the pages that are written of them."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from flows.cli.options import PoolOption, SetOption, app, clean_errors, err, out


def _names() -> list[str]:
    from experiments.spec.campaign import campaigns

    return list(campaigns())


def _words(**values: list[str] | None) -> list[str]:
    return [word for option, given in values.items() for value in given or [] for word in (f"--{option}", value)]


def _check_publish(sweep: str | None, budget: str | None, *, plan: bool, again: bool) -> None:
    """Raise ConfigError for an option that does nothing beside --publish. `--pool` and `--set` say which rehearsal's pages are written."""
    from experiments.config.errors import ConfigError

    given = {
        "--sweep": (sweep, "leave it out: a page has all sweeps of its folder"),
        "--budget": (budget, "leave it out: pages have what was measured, and nothing runs"),
        "--again": ("" if again else None, "leave it out: pages have what was measured, and nothing runs"),
        "--plan": ("" if plan else None, "leave out one of the two: --plan shows what would run, and writes nothing"),
    }
    for option, (value, hint) in given.items():
        if value is not None:
            raise ConfigError.one(option, None, value, "is given with --publish", hint)


@app.command(
    epilog="Examples: sweep campaign gpu-x4 --plan · sweep campaign gpu-x4 --budget 9m · sweep campaign gpu-x4 --publish · "
    "sweep campaign gpu-x2 --sweep llm-8b --sweep flava-max · "
    "a rehearsal: sweep campaign vit-x4 --pool cpu --set model=tiny --set devices=2 --set cores_per_device=1 --set precision=fp32 "
    "--set allow_tf32=false --set fsdp_compute=fp32 --set measure_s=1",
)
@clean_errors
def campaign(
    file_: Annotated[
        str, typer.Argument(metavar="FILE", help="a campaign: a file in experiments/campaigns, or a path", autocompletion=_names)
    ],
    plan: Annotated[bool, typer.Option("--plan", help="show what would run and how long that takes, and start nothing")] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="NAME", help="run this sweep of the campaign alone (repeat for more, in the order given)"),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="time for this run of the command, such as 9m; else as the file says")
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="write the results pages of what was measured, and start nothing")] = False,
    state: Annotated[
        str | None, typer.Option("--state", metavar="NAME", help="keep its state under another name: another campaign with the same file")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="measure again what was measured with other code, data or libraries")] = False,
    pool: PoolOption = None,
    set_: SetOption = None,
) -> None:
    """Run the sweeps of a campaign one after the other within a time. The same command again goes on where it stopped.

    With --pool or --set it is a rehearsal: its state and its pages are kept apart, below runs/campaigns/NAME-rehearsal. --publish takes
    the same ones as the run did.
    """
    from time import monotonic

    began = monotonic()
    from experiments.config.duration import option_seconds
    from experiments.spec.campaign import load_campaign
    from flows.cli.campaign_time import check_time
    from flows.cli.run_campaign import Campaign
    from flows.cli.start_sweep import once
    from tasks.campaign.entries import Overrides
    from tasks.campaign.store import CampaignStore

    if publish:
        _check_publish(sweep[0] if sweep else None, budget, plan=plan, again=again)
    file = load_campaign(file_)
    overrides = Overrides(pools=tuple(pool or ()), set=once("--set", set_))
    store = CampaignStore(state if state is not None else f"{file.campaign}-rehearsal" if overrides else file.campaign)
    budget_s = file.budget_s if budget is None else option_seconds("--budget", budget)
    if not publish:
        check_time(budget_s, "budget" if budget is None else "--budget")
    asked = [file_, *(["--state", state] if state is not None else []), *_words(pool=pool, set=set_)]
    part = shlex.join([*asked, *_words(sweep=sweep), *(["--again"] if again else [])])
    this = Campaign(shlex.join(asked), part, budget, file.part(sweep) if sweep else file, store, overrides, budget_s, began, again=again)
    if plan:
        this.show(out)
    elif publish:
        raise typer.Exit(this.publish(out, err))
    else:
        raise typer.Exit(this.run(out, err))
