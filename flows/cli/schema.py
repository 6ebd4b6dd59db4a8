"""JSON Schema of the files that a person writes, for editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.atomic_file import atomic_write
from flows.cli.options import app, clean_errors, out


class Kind(StrEnum):
    """A kind of file that a person writes."""

    SUITE = "suite"
    POOLS = "pools"
    NIGHTLY = "nightly"
    CAMPAIGN = "campaign"


def schema_text(kind: Kind) -> str:
    """The JSON Schema of a kind of file, as JSON. Raises ConfigError for a workload that cannot be read."""
    return json.dumps(_OF[kind](), indent=1) + "\n"


def _suite() -> dict[str, Any]:
    from experiments.spec.json_schema import suite_schema

    return suite_schema()


def _pools() -> dict[str, Any]:
    from cluster.pools.pool import PoolsFile
    from experiments.spec.json_schema import DIALECT

    return {"$schema": DIALECT, **PoolsFile.model_json_schema(), "title": "Pools of sweepbench"}


def _nightly() -> dict[str, Any]:
    from experiments.regression.definition import NightFile
    from experiments.spec.json_schema import DIALECT

    return {"$schema": DIALECT, **NightFile.model_json_schema(), "title": "A nightly definition of sweepbench"}


def _campaign() -> dict[str, Any]:
    from experiments.spec.campaign import CampaignFile
    from experiments.spec.json_schema import DIALECT

    return {"$schema": DIALECT, **CampaignFile.model_json_schema(), "title": "A campaign of sweepbench"}


_OF: dict[Kind, Callable[[], dict[str, Any]]] = {
    Kind.SUITE: _suite,
    Kind.POOLS: _pools,
    Kind.NIGHTLY: _nightly,
    Kind.CAMPAIGN: _campaign,
}


@app.command(epilog="Example: sweep schema suite --out my-bench/schemas/suite.json")
@clean_errors
def schema(
    kind: Annotated[Kind, typer.Argument(help="the kind of file")],
    to: Annotated[Path | None, typer.Option("--out", help="write it to this file, in place of standard output")] = None,
) -> None:
    """JSON Schema of a file that a person writes, by which editors complete keys. Knows the workloads of $SWEEPBENCH_EXTRA."""
    text = schema_text(kind)
    if to is None:
        typer.echo(text, nl=False)
        return
    from flows.cli.output import check_file, written_to

    with written_to("--out", to):
        to.parent.mkdir(parents=True, exist_ok=True)
        check_file("--out", to)
        atomic_write(to, text)
    out.print(f"wrote {to}", highlight=False, markup=False, soft_wrap=True)
