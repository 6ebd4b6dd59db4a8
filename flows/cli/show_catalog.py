"""What can be run and where: what `sweep suites` and `sweep pools` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from experiments.config.scalar_text import table_text
from flows.cli.tables import make_table


def suite_rows() -> list[dict[str, Any]]:
    from experiments.spec.load import list_suites

    return [info.model_dump() for info in list_suites()]


def print_suites(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    table = make_table("suite", "workload", "profiles", "description")
    for row in rows:
        problem = Text(str(row["problem"]), style="red") if row["problem"] else Text(str(row["description"]).split("\n")[0])
        table.add_row(row["name"], row["workload"] or "", ", ".join(row["profiles"]), problem)
    out.print(table)


def pool_rows() -> list[dict[str, Any]]:
    """Every pool, asked all at once so that one that is down does not keep the others waiting."""
    from concurrent.futures import ThreadPoolExecutor

    from cluster.pools.pool import load_pools
    from cluster.pools.probe import probe

    known = load_pools()
    with ThreadPoolExecutor(max_workers=8) as threads:
        states = list(threads.map(probe, known.values()))
    return [
        {"name": name, "device": pool.device, "address": pool.address, "nodes": pool.nodes, "emulated": pool.emulated, **state.model_dump()}
        for (name, pool), state in zip(known.items(), states, strict=True)
    ]


def print_pools(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    table = make_table("pool", "device", "address", "state", "free", "total", "ray", "python")
    for row in rows:
        state = Text("reachable", style="green") if row["reachable"] else Text("not reachable", style="red")
        figures = [table_text(row.get(name), missing="") for name in ("free", "total", "ray", "python")]
        table.add_row(row["name"], row["device"] + (" (emulated)" if row["emulated"] else ""), row["address"] or "", state, *figures)
    out.print(table)
    for row in rows:
        if row.get("problem"):
            out.print(f"{row['name']}: {row['problem'].removeprefix('pool ' + row['name'] + ': ')}", highlight=False, soft_wrap=True)
