"""What `sweep list` and `sweep show` print."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from experiments.config.errors import DamagedFile, UserError
from experiments.config.paths import runs_root
from experiments.trial import TrialResult
from flows.cli.show_comparison import print_shown, print_where, shown_of
from flows.cli.tables import make_table, print_rows
from tasks.report.shown import UNREADABLE
from tasks.sweep.request_text import overrides_json, short_overrides
from tasks.sweep.store import Plan, SweepStore, list_sweeps, started_order

if TYPE_CHECKING:
    from tasks.analysis.results import Sweep
    from tasks.report.shown import ShownComparison

WIDE = 120  # of a terminal; a narrower one has no room for what an id and the outcomes tell as well
MOST = 40  # characters of a sweep's overrides in the list, half as many in a narrow terminal; `sweep show` has all


def sweep_rows() -> list[dict[str, Any]]:
    """One entry for each sweep, newest first, and for what was imported. One that cannot be read says so and hides no other."""
    from flows.cli.show_imported import imported_rows  # which `sweep show` does without

    rows: list[dict[str, Any]] = imported_rows()
    for sweep_id in list_sweeps():
        store = SweepStore(sweep_id)
        try:
            plan = store.load_plan()
        except UserError as error:
            rows.append({"sweep_id": sweep_id, "state": "unreadable", "problem": str(error)})
            continue
        counts = _counts(store, plan)
        rows.append(
            {
                "sweep_id": sweep_id,
                "suite": plan.name,
                "profile": plan.profile,
                "command": plan.command,
                **overrides_json(plan.request),
                "created_at": plan.created_at,
                "state": _sweep_state(store, plan, counts),
                "trials": len(plan.trials),
                "outcomes": dict(counts),
                "measured_share": _measured_share(store),
            }
        )
    return sorted(rows, key=lambda row: started_order(str(row["sweep_id"])), reverse=True)


def _counts(store: SweepStore, plan: Plan) -> Counter[str]:
    """How many trials of the plan ended as what, by the outcomes' words."""
    return Counter(_result(store, trial.key)[0] for trial in plan.trials)


def _result(store: SweepStore, key: str) -> tuple[str, TrialResult | None, str | None]:
    """(the outcome's word, `to do` or `unreadable`; a trial's result; what is wrong with the file)."""
    try:
        result = store.result(key)
    except DamagedFile as error:
        return UNREADABLE, None, str(error)
    return str(result.outcome) if result else "to do", result, None


def _status(store: SweepStore) -> dict[str, Any] | None:
    """status.json; a damaged one says so."""
    try:
        status = store.load_status()
    except DamagedFile as error:
        return {"problem": str(error)}
    return status.model_dump() if status else None


def _measured_share(store: SweepStore) -> float | None:
    """Of the time that its pools were held, as its last report found it; None before there is one, and for emulated trials."""
    from tasks.analysis.held_files import read_kept

    held = read_kept(store.dir)
    return held.measured_share if held is not None and not any(trial.emulated for trial in held.trials) else None


def _sweep_state(store: SweepStore, plan: Plan, counts: Mapping[str, int]) -> str:
    if store.is_held():
        return "running"
    if counts.get(UNREADABLE):
        return "damaged"
    if counts.get("to do") or counts.get("cancelled"):
        return "incomplete"
    grows = plan.decide is not None or plan.race is not None or (plan.aa is not None and plan.aa.minutes is not None)
    return "incomplete" if grows and (_status(store) or {}).get("status", 1) == 1 else "complete"  # further rounds are to come


def print_sweeps(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        out.print(f"no sweep under {runs_root()} yet; `sweep run bridgetower` makes one", highlight=False, soft_wrap=True)
        return
    lines = [_columns(row, MOST) for row in rows]
    overridden = any(line["overrides"] for line in lines)
    wide = out.width >= WIDE + overridden * MOST
    lines = lines if wide else [_columns(row, MOST // 2) for row in rows]
    left_out = [] if wide else ["started (UTC)", "trials", *(["measured"] if overridden else [])]
    left_out += [] if overridden else ["overrides"]
    headings = [heading for heading in lines[0] if heading not in left_out]
    table = make_table(*headings)
    for line in lines:
        table.add_row(*(Text(line[heading]) for heading in headings))
    out.print(table)
    for row in rows:  # below it: a table would break the name of the file
        if "problem" in row:
            out.print(row["problem"], style="red", highlight=False, markup=False, soft_wrap=True)


def _columns(row: Mapping[str, Any], most: int) -> dict[str, str]:
    """A sweep's line, by heading. `most`: characters of its overrides."""
    from flows.cli.show_imported import OF_OTHERS, outcomes_of

    started, profile, overrides, trials, outcomes, share = "", "", "", "", "", ""
    if "problem" not in row:
        started = time.strftime("%Y-%m-%d %H:%M", time.gmtime(row["created_at"]))
        if row["state"] == OF_OTHERS:
            outcomes = outcomes_of(row)
        else:
            profile, overrides, trials = row["profile"], short_overrides(row, most), str(row["trials"])
            outcomes = ", ".join(f"{count} {name}" for name, count in row["outcomes"].items())
            share = _number(row["measured_share"], "{:.0f} %", 100)
    return {
        "sweep": row["sweep_id"],
        "profile": profile,
        "overrides": overrides,
        "started (UTC)": started,
        "state": row["state"],
        "trials": trials,
        "outcomes": outcomes,
        "measured": share,
    }


def sweep_json(store: SweepStore) -> dict[str, Any]:
    """A sweep's trials with outcome, reason and summary; `packages` has the installed versions that their digests stand for."""
    from tasks.analysis.results import load_sweep  # which imports NumPy, SciPy and Arrow
    from tasks.report.make_shown import ended_as

    plan = store.load_plan()
    trials, lists = [], dict[str, Mapping[str, str]]()
    sweep = load_sweep(store.dir)
    rows = {row.trial.key: row for row in sweep.rows}
    for trial in plan.trials:
        word, result, damage = ended_as(store.dir, rows[trial.key])
        packages = rows[trial.key].environment.get("packages")
        if packages:
            lists[packages] = rows[trial.key].packages
        trials.append(
            {
                "key": trial.key,
                "name": trial.name,
                "values": trial.axes,
                "repeat": trial.repeat,
                "environment": trial.environment,
                "commit": trial.commit,
                "packages": packages,
                "folder": str(store.trial_dir(trial.key)),
                "outcome": word if result or damage else None,
                "reason": damage or (result.remark if result else None),
                "attempt": result.attempt if result else None,
                "emulated": trial.emulated or (result is not None and result.emulated),
                "summary": dict(rows[trial.key].summary) if result else {},
            }
        )
    return {
        "sweep_id": plan.sweep_id,
        "suite": plan.name,
        "profile": plan.profile,
        "command": plan.command,
        **overrides_json(plan.request),
        "running": store.is_held(),
        "status": _status(store),
        "trials": trials,
        "packages": lists,
        "held": _held_json(sweep),
        "superseded": [entry.model_dump() for entry in plan.superseded],
        "damaged": [*sweep.problems, *store.untold(plan)],
    }


def _held_json(sweep: Sweep) -> dict[str, Any] | None:
    """Where the time went that the pools were held, without emulated trials; None where it was not recorded."""
    from tasks.analysis.held_files import held_of
    from tasks.report.held_text import held_json

    held = held_of(sweep)
    return held_json(held) if held is not None else None


def print_sweep(out: Console, store: SweepStore) -> list[str]:
    """Returns what is wrong with files of its trials, and which are missing; it says that too."""
    shown = shown_of(store)
    print_rows(out, shown.headings, shown.trials)
    for line in shown.superseded:
        out.print(line, highlight=False)
    if store.is_held():
        out.print("running now", style="bold")
    print_shown(out, shown.comparison)
    for line in shown.held:
        out.print(line, highlight=False, soft_wrap=True)
    out.print(f"command:   {shown.command}", highlight=False, markup=False, soft_wrap=True)
    print_where(out, store)
    plan = store.load_plan()
    if (go_on := _go_on(store, plan, shown.comparison)) is not None:
        out.print(f"go on with it: {go_on}", highlight=False, markup=False, soft_wrap=True)
    damaged = [*shown.damaged, *store.untold(plan)]
    for line in damaged:
        out.print(line, style="red", highlight=False, markup=False, soft_wrap=True)
    return damaged


def _go_on(store: SweepStore, plan: Plan, comparison: ShownComparison | None) -> str | None:
    """The command that goes on with a sweep that has not come to its end; None where the comparison names it, perhaps with more time, and
    for a night, whose command is its own."""
    command = f"sweep resume {store.sweep_id}"
    if plan.is_night or (comparison is not None and command in comparison.step):
        return None
    return command if _sweep_state(store, plan, _counts(store, plan)) == "incomplete" else None


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "" if value is None else form.format(value * scale)
