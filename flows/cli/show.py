"""What the listings print: plans, sweeps, suites, pools, comparisons; each as a table for people and as plain data for --json."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from cluster.trial_layout import REPORT_PAGE
from experiments.config.paths import runs_root
from experiments.metrics import metric_of
from experiments.trial import TrialResult
from flows.cli.live_table import clock
from tasks.sweep.plan import TrialState
from tasks.sweep.store import Plan, StoreError, SweepStore, list_sweeps

_STATES = {"done": "green", "again": "yellow", "to do": "cyan"}


def _table(*headings: str) -> Table:
    """Nothing is cut off where the terminal is narrow: cells are broken over lines, except the first, a name to be copied."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0, overflow="ignore" if number == 0 else "fold")
    return table


# --- sweep plan


def plan_json(plan: Plan, found: Sequence[TrialState], expected: Mapping[str, float], against: str | None) -> dict[str, Any]:
    """The plan with each trial's state and expected seconds (null without history)."""
    trials = [
        {
            "key": entry.trial.key,
            "name": entry.trial.name,
            "pool": entry.trial.pool,
            "repeat": entry.trial.repeat,
            "values": entry.trial.axes,
            "parameters": entry.trial.parameters,
            "state": entry.state,
            "why": entry.why,
            "expected_s": expected.get(entry.trial.cell),
        }
        for entry in found
    ]
    suite = plan.trials[0].suite if plan.trials else None
    return {
        "suite": suite,
        "profile": plan.profile,
        "compared_with": against,
        "expected_s": _total(plan, found, expected, against),
        "trials": trials,
    }


def plan(out: Console, plan: Plan, found: Sequence[TrialState], expected: Mapping[str, float], against: str | None, *, auto: bool) -> None:
    """The matrix in the order in which it would run."""
    axes = list(plan.trials[0].axes)
    table = _table("", *axes, "repeat", "state", "expected")
    for entry in found:
        seconds = expected.get(entry.trial.cell)
        state = Text(entry.state, style=_STATES[entry.state])
        if entry.why:
            state.append(f" ({entry.why})", style="dim")
        values = [_text(entry.trial.axes[axis]) for axis in axes]
        table.add_row(str(entry.trial.index + 1), *values, str(entry.trial.repeat), state, clock(seconds) if seconds else "")
    out.print(table)
    counts = Counter(entry.state for entry in found)
    chosen = " (chosen by auto)" if auto else ""
    cells = len({trial.cell for trial in plan.trials})
    out.print(f"{plan.trials[0].suite}, profile {plan.profile}{chosen}: {cells} cells, {len(found)} trials", highlight=False)
    if against:
        said = ", ".join(f"{count} {state}" for state, count in counts.items())
        out.print(f"against {against}: {said}. `sweep run` measures all anew; `sweep resume {against}` goes on", highlight=False)
    total = _total(plan, found, expected, against)
    out.print("expected: " + (clock(total) if total is not None else "unknown, no history yet for some cells"), highlight=False)


def _total(plan: Plan, found: Sequence[TrialState], expected: Mapping[str, float], against: str | None) -> float | None:
    """Seconds until all trials are done, pools side by side (of a sweep that exists, the rest); None where a cell has no history."""
    lanes: dict[str, float] = {}
    for entry in found:
        if plan.sweep_id == against and entry.state == "done":
            continue
        seconds = expected.get(entry.trial.cell)
        if seconds is None:
            return None
        lanes[entry.trial.pool] = lanes.get(entry.trial.pool, 0.0) + seconds
    return max(lanes.values(), default=0.0)


def why_again(err: Console, found: Sequence[TrialState]) -> None:
    """Before a resume: how much is done, and for each trial that is not, why it runs."""
    counts = Counter(entry.state for entry in found)
    err.print(f"{counts['done']} of {len(found)} trials are done", highlight=False)
    for entry in found:
        if entry.state == "again":
            err.print(f"  again: {entry.trial.name}: {entry.why}", highlight=False, soft_wrap=True)
    if counts["to do"]:
        err.print(f"  to do: {counts['to do']}", highlight=False)


# --- sweep list, show


def sweep_rows() -> list[dict[str, Any]]:
    """One entry for each sweep, newest first. A sweep that cannot be read says so and hides no other."""
    rows: list[dict[str, Any]] = []
    for sweep_id in list_sweeps():
        store = SweepStore(sweep_id)
        try:
            plan = store.load_plan()
            states = store.states(plan)
        except StoreError as error:
            rows.append({"sweep_id": sweep_id, "state": "unreadable", "problem": str(error)})
            continue
        counts = Counter(str(outcome) if outcome else "to do" for outcome in states.values())
        rows.append(
            {
                "sweep_id": sweep_id,
                "suite": plan.name,
                "profile": plan.profile,
                "created_at": plan.created_at,
                "state": _sweep_state(store, counts),
                "trials": len(states),
                "outcomes": dict(counts),
            }
        )
    return rows


def _sweep_state(store: SweepStore, counts: Mapping[str, int]) -> str:
    if store.is_held():
        return "running"
    return "incomplete" if counts.get("to do") or counts.get("cancelled") else "complete"


def sweeps(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        out.print(f"no sweep under {runs_root()} yet; `sweep run bridgetower` makes one", highlight=False, soft_wrap=True)
        return
    table = _table("sweep", "profile", "started (UTC)", "state", "trials", "outcomes")
    for row in rows:
        if "problem" in row:
            table.add_row(row["sweep_id"], "", "", row["state"], "", row["problem"])
            continue
        started = time.strftime("%Y-%m-%d %H:%M", time.gmtime(row["created_at"]))
        outcomes = ", ".join(f"{count} {name}" for name, count in row["outcomes"].items())
        table.add_row(row["sweep_id"], row["profile"], started, row["state"], str(row["trials"]), outcomes)
    out.print(table)


def sweep_json(store: SweepStore) -> dict[str, Any]:
    """A sweep's trials with outcome, reason and summary."""
    plan = store.load_plan()
    trials = []
    for trial in plan.trials:
        result = store.result(trial.key)
        trials.append(
            {
                "key": trial.key,
                "name": trial.name,
                "values": trial.axes,
                "repeat": trial.repeat,
                "folder": str(store.trial_dir(trial.key)),
                "outcome": str(result.outcome) if result else None,
                "reason": result.reason if result else None,
                "attempt": result.attempt if result else None,
                "emulated": trial.emulated or (result is not None and result.emulated),
                "summary": result.summary if result else {},
            }
        )
    return {
        "sweep_id": plan.sweep_id,
        "suite": plan.name,
        "profile": plan.profile,
        "command": plan.command,
        "running": store.is_held(),
        "status": store.load_status(),
        "trials": trials,
        "superseded": [entry.model_dump() for entry in plan.superseded],
    }


def sweep(out: Console, store: SweepStore) -> None:
    plan = store.load_plan()
    table = _table("trial", "outcome", metric_of("throughput").unit, "step, ms", "data wait", "loss", "s", "reason")
    for trial in plan.trials:
        result = store.result(trial.key)
        table.add_row(trial.name, *(_result_cells(result) if result else ("to do",)))
    out.print(table)
    for entry in plan.superseded:
        out.print(f"{entry.key} was run again as {entry.by}: {entry.why}", highlight=False)
    if store.is_held():
        out.print("running now", style="bold")
    comparison(out, store)
    where(out, store)


def _result_cells(result: TrialResult) -> tuple[str, ...]:
    summary = result.summary
    return (
        str(result.outcome) + (" (emulated)" if result.emulated else "") + (f" (attempt {result.attempt})" if result.attempt > 1 else ""),
        _number(summary.get("throughput"), "{:.1f}"),
        _number(summary.get("step_time_median_s"), "{:.1f}", 1000),
        _number(summary.get("data_wait_share"), "{:.1f} %", 100),
        _number(summary.get("final_loss"), "{:.4f}"),
        f"{result.finished_at - result.started_at:.1f}",
        result.reason or "",
    )


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "" if value is None else form.format(value * scale)


def comparison(out: Console, store: SweepStore, *, emulated: bool = False) -> None:
    """The suite's comparison table; with `emulated`, that of the emulated trials, which says so."""
    from tasks.report.comparison_table import comparison_table

    table = comparison_table(store.dir, emulated=emulated)
    if not table.rows:
        return
    if emulated:
        out.print("EMULATED: NOT A MEASUREMENT", style="bold red")
    out.print()
    drawn = table.rich()
    if Measurement.get(out, out.options.update(max_width=10_000), drawn).maximum <= out.width:
        out.print(drawn)
        return
    out.print(table.title, style="italic", highlight=False)  # too wide for this terminal: a line for each cell
    for names, cells in table.rows:
        row = " · ".join(f"{axis.replace('_', ' ')} {name}" for axis, name in zip(table.row_axes, names, strict=True))
        out.print(row, style="bold", soft_wrap=True)
        width = max(8, *map(len, table.columns))
        for head, cell in zip(table.columns, cells, strict=True):
            if cell.plain:
                out.print(f"  {head:>{width}}  {cell.plain}", highlight=False, markup=False, soft_wrap=True)


def where(out: Console, store: SweepStore) -> None:
    """Where the report is and how to see the curves."""
    from cluster.stack.settings import environment
    from tasks.tracking.client import tracking_uri

    report = store.dir / REPORT_PAGE
    if report.exists():
        out.print(f"report:    {report}", highlight=False, soft_wrap=True)
    uri = environment().get("MLFLOW_TRACKING_URI") or tracking_uri()  # the stack's, if it is up
    out.print(f"MLflow UI: {uri if uri.startswith('http') else 'sweep ui'}", highlight=False, soft_wrap=True)


def two_sweeps(out: Console, a: SweepStore, b: SweepStore) -> None:
    """`sweep compare`: every cell that both have, and how B stands to A."""
    from tasks.report.compare_sweeps import compare, write_comparison

    found = compare(a.dir, b.dir)
    out.print(found.headline, highlight=False)
    if found.pairs:
        table = _table(*found.table.header)
        for row in found.table.rows:
            table.add_row(*(Text(text) for text in row))
        out.print(table)
    _, html = write_comparison(found, b.dir)
    out.print(f"report: {html}", highlight=False, soft_wrap=True)


# --- sweep suites, pools


def suite_rows() -> list[dict[str, Any]]:
    from experiments.spec.load import list_suites

    return [info.model_dump() for info in list_suites()]


def suites(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    table = _table("suite", "workload", "profiles", "description")
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


def pools(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    table = _table("pool", "device", "address", "state", "free", "total", "ray", "python")
    for row in rows:
        state = Text("reachable", style="green") if row["reachable"] else Text("not reachable", style="red")
        figures = [_text(row.get(name)) for name in ("free", "total", "ray", "python")]
        table.add_row(row["name"], row["device"] + (" (emulated)" if row["emulated"] else ""), row["address"] or "", state, *figures)
    out.print(table)
    for row in rows:
        if row.get("problem"):
            out.print(f"{row['name']}: {row['problem'].removeprefix('pool ' + row['name'] + ': ')}", highlight=False, soft_wrap=True)


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
