"""Section: the sweep's id, date, size, commit, tree and command."""

from __future__ import annotations

from datetime import UTC, datetime

from tasks.analysis.held_time import HeldTime
from tasks.analysis.results import Sweep
from tasks.report.continued import continued_text
from tasks.report.provenance import commits_text, ran_at, tree_text
from tasks.report.section import Facts, ReportSource, Section
from tasks.report.text_format import listed

COMMAND = "Command"


def section(source: ReportSource) -> Section:
    return Section("sweep_facts", "Sweep", [Facts(sweep_facts(source.sweep, source.held), code=frozenset({COMMAND}))])


def sweep_facts(sweep: Sweep, held: HeldTime | None = None) -> list[tuple[str, str]]:
    """(name, value); what is not known is left out. `held`: its held time, which tells in how many runs it was measured."""
    plan = sweep.plan
    ended = sum(row.result is not None for row in sweep.rows)
    facts = [
        ("Sweep", sweep.sweep_id),
        ("Planned", _date(plan.created_at)),
        ("Trials", f"{ended} of {len(sweep.rows)} ended" if ended < len(sweep.rows) else f"{ended}, all ended"),
        ("Commit", ran_at(sweep)),
        ("Tree", tree_text(sweep)),
        ("Commits of trials", commits_text(plan)),
        (COMMAND, plan.command),
        ("Continued by", continued_text(plan)),
        ("Runs", str(held.runs) if held and held.runs and held.runs > 1 else ""),
    ]
    return [(name, value) for name, value in facts if value]


def origin_of(sweep: Sweep) -> list[str]:
    """When the sweep was planned, of which commit, and on what: what a reader asks of any number first. What is not known is left out."""
    devices = dict.fromkeys(str(row.environment["device_name"]) for row in sweep.rows if row.environment.get("device_name"))
    hosts = dict.fromkeys(str(row.environment.get("host") or row.environment.get("host_id") or "") for row in sweep.rows if row.environment)
    commit = ran_at(sweep)
    where = [listed(list(devices)), f"on {listed(known)}" if (known := [host for host in hosts if host]) else ""]
    return [part for part in (_date(sweep.plan.created_at), f"commit {commit}" if commit else "", " ".join(filter(None, where))) if part]


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
