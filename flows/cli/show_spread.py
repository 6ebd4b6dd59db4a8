"""What `sweep spread` prints: how far trials, sweeps and hosts lie apart, as past sweeps show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from experiments.config.paths import runs_root
from experiments.metrics import metric_of
from experiments.stats.spread import Spread
from flows.cli.tables import make_table


def spread_rows(metric: str, err: Console) -> list[dict[str, Any]]:
    """An entry for each pool, device and workload of past sweeps. `sd` is of the logarithm, on linear scales in the metric's unit.

    A file that cannot be read is named on `err` and skipped; how many do not say their workload is told there too. Raises ConfigError for
    an unknown metric.
    """
    from tasks.analysis.spread_history import Place, learn
    from tasks.analysis.spread_store import read_spreads

    metric_of(metric)
    past = read_spreads(runs_root())
    for path in past.damaged:
        err.print(f"{path} is damaged and was skipped; `sweep spread --rebuild` writes it again", style="yellow", soft_wrap=True)
    if past.early:
        err.print(_early(past.early), style="yellow", soft_wrap=True)
    trials = [trial for of_sweep in past.trials.values() for trial in of_sweep if metric in trial.values]
    places = {(trial.pool, trial.device, trial.workload) for trial in trials if trial.workload is not None}
    rows = []
    for pool, device, workload in sorted(places, key=lambda place: (place[0], place[1] or "", place[2])):
        known = learn(past, Place(pool, device, workload, metric))
        counts = {"trial": known.trials, "sweep": known.sweeps, "host": known.hosts}
        spreads = {"trial": known.trial, "sweep": known.sweep, "host": known.host}
        parts = {name: {"from": counts[name], **_plain(spread)} for name, spread in spreads.items()}
        rows.append({"pool": pool, "device": device, "workload": workload, "metric": metric, **parts})
    return rows


def _early(count: int) -> str:
    from tasks.report.text_format import plural

    who = f"{plural(count, 'sweep')} of an earlier version {'does' if count == 1 else 'do'} not say of what workload the trials are, so"
    return f"{who} only hosts are learned from there; `sweep spread --rebuild` writes anew what sweeps that are still there say"


def _plain(spread: Spread | None) -> dict[str, float | None]:
    return {"sd": spread.sd if spread else None, "df": spread.df if spread else None}


def print_spreads(out: Console, rows: Sequence[Mapping[str, Any]], metric: str) -> None:
    """A line for each pool, device and workload."""
    if not rows:
        out.print(f"no past sweep has {metric}; `sweep spread --rebuild` reads the sweeps under {runs_root()} again", highlight=False)
        return
    table = make_table("pool", "device", "workload", *(f"{name}s apart" for name in ("trial", "sweep", "host")))
    for row in rows:
        table.add_row(row["pool"], row["device"] or "", row["workload"], *(_text(row[name], metric) for name in ("trial", "sweep", "host")))
    out.print(table)
    what = f"One standard deviation of {metric}, its degrees of freedom, and how many trials, sweeps or hosts show it."
    out.print(f"{what} Hosts: of all workloads on the device.", highlight=False)


def _text(part: Mapping[str, Any], metric: str) -> str:
    from tasks.report.text_format import size_of

    if part["sd"] is None:
        return f"unknown (from {part['from']})"
    return f"{size_of(Spread(part['sd'], part['df']), metric_of(metric))}, df {part['df']:.1f} (from {part['from']})"


def rebuild_spreads(err: Console) -> None:
    """Write what each sweep says of the spread anew, and say what could not be read."""
    from tasks.analysis.spread_store import rebuild
    from tasks.report.text_format import plural

    written, problems = rebuild(runs_root())
    for problem in problems:
        err.print(problem, style="yellow", highlight=False, markup=False, soft_wrap=True)
    err.print(f"{plural(written, 'sweep')} read that have trials to learn from", highlight=False)
