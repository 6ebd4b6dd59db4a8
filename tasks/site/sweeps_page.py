"""The list of sweeps that are no nights, the certificates of A/A pairs, and what others measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from experiments.config.errors import UserError
from experiments.metrics import metric_of
from tasks.analysis.certificates import Certificate, read_certificates
from tasks.imports.model import Imported
from tasks.imports.store import list_imported, read_imported
from tasks.imports.text import NOT_OURS, headline
from tasks.nightly.store import night_names
from tasks.report.certificate_text import GROUP, counted, with_interval
from tasks.report.html import render_page
from tasks.site.addresses import SWEEPS, sweep_report
from tasks.site.list_pages import list_pages
from tasks.site.words import Commits
from tasks.sweep.store import Plan, SweepStore, list_sweeps

MOST = 1000  # sweeps that are listed
MOST_IMPORTS = 200  # all on the first page
_STAMP = len("-20261122-020000-0a1b")  # the end of every sweep's id


@dataclass(frozen=True)
class KnownSweep:
    """A sweep that is no night. `ended`: how its last flow ended."""

    plan: Plan
    ended: str


def known_sweeps(root: Path | None = None) -> tuple[list[KnownSweep], list[str]]:
    """The newest sweeps that are no nights, newest first, and a sentence for each whose files are damaged."""
    found, problems = [], []
    nights = {f"nightly-{name}"[:64].rstrip("-_") for name in night_names(root)}  # as a night names its sweep
    for sweep_id in [each for each in list_sweeps(root) if each[:-_STAMP] not in nights][:MOST]:
        store = SweepStore(sweep_id, root)
        try:
            plan, status = store.load_plan(), store.load_status()
        except UserError as error:
            problems.append(str(error))
            continue
        found.append(KnownSweep(plan, status.message if status else "runs, or was interrupted"))
    return found, problems


def known_imports() -> tuple[list[Imported], list[str]]:
    """The newest imports, newest first, and a sentence for each that is damaged."""
    found, problems = [], []
    for sweep_id in list_imported()[:MOST_IMPORTS]:
        try:
            imported = read_imported(sweep_id)
        except UserError as error:
            problems.append(str(error))
            continue
        if imported is not None:
            found.append(imported)
    return found, problems


def sweeps_pages(
    sweeps: Sequence[KnownSweep],
    imports: Sequence[Imported],
    root: Path,
    left_out: Sequence[str],
    commits: Commits,
    reports: frozenset[str],
    now: datetime,
) -> dict[str, str]:
    """Address -> page: certificates and imports on the first, sweeps on as many as they need.

    `root`: of the runs. `reports`: that the site has.
    """
    certificates, problems = read_certificates(root)
    return list_pages(
        SWEEPS,
        "sweeps.html",
        [_row(sweep, commits, reports) for sweep in sweeps],
        title="Sweeps and certificates",
        made=now.strftime("%Y-%m-%d %H:%M"),
        left_out=[*left_out, *problems],
        certificates=[_certificate(one, reports) for one in certificates.values()],
        imports=[_import(one, reports) for one in imports],
        not_ours=NOT_OURS,
        nothing="No sweep yet: `sweep run synthetic` makes one.",
    )


def _row(sweep: KnownSweep, commits: Commits, reports: frozenset[str]) -> Markup:
    plan = sweep.plan
    address = sweep_report(plan.sweep_id)
    commit = commits.link(str(plan.git["commit"]) if plan.git.get("commit") else None)
    html = render_page(
        "site/sweep_row.html",
        address=address if address in reports else "",
        sweep_id=plan.sweep_id,
        suite=plan.name if plan.profile == "full" else f"{plan.name}, {plan.profile}",
        started=_minute(plan.created_at),
        trials=f"{len(plan.trials):,}",
        commit=commit,
        ended=sweep.ended.removeprefix(f"{plan.sweep_id}: "),
    )
    return Markup(html)  # noqa: S704 - of a template, which escapes


def _import(one: Imported, reports: frozenset[str]) -> dict[str, str]:
    address = sweep_report(one.sweep_id)
    return {
        "address": address if address in reports else "",
        "sweep_id": one.sweep_id,
        "imported": _minute(one.imported_at),
        "what": headline(one),
    }


def _certificate(one: Certificate, reports: frozenset[str]) -> dict[str, Any]:
    group = one.group(GROUP)
    return {
        "device": one.device,
        "pool": one.pool,
        "metric": metric_of(one.metric).label,
        "pairs": one.pairs,
        "covered": counted(group.covered),
        "false": counted(group.false_verdicts),
        "single": with_interval(one.single),
        "last": _minute(one.last),
        "sweeps": [(sweep, address if (address := sweep_report(sweep)) in reports else "") for sweep in one.sweeps],
    }


def _minute(at: float) -> str:
    """A Unix time as a date and minute, UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
