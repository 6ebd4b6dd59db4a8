"""Which published sweeps ask the same question on other hosts: the index names them, and so does each page as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from tasks.report.published_pages import Page, SweepOnPage
from tasks.sweep.question import asked_for


def on_other_hosts(pages: Sequence[Page]) -> Mapping[Path, Sequence[tuple[Page, SweepOnPage]]]:
    """Folder of a sweep -> the sweeps that ask the same of the same cells, on as many devices of the same name, and share no host with it.

    Each pair stands at both. A sweep that does not tell its hosts, or its devices, is in none.
    """
    groups: dict[Any, list[tuple[Page, SweepOnPage]]] = {}
    for page in pages:
        for sweep in page.sweeps:
            if sweep.hosts and sweep.ran_on:
                groups.setdefault(_question(sweep), []).append((page, sweep))
    found: dict[Path, list[tuple[Page, SweepOnPage]]] = {}
    for group in groups.values():
        for (_, sweep), other in permutations(group, 2):
            if not sweep.hosts & other[1].hosts:
                found.setdefault(sweep.folder, []).append(other)
    return found


def same_on_others(own: Page, others: Sequence[Page]) -> Mapping[str, Sequence[str]]:
    """Id of a sweep of `own` -> names of the other pages that have the same on another host."""
    found = on_other_hosts([own, *others])
    return {
        sweep.folder.name: list(dict.fromkeys(other.name for other, _ in found.get(sweep.folder, ()) if other is not own))
        for sweep in own.sweeps
    }


def _question(sweep: SweepOnPage) -> tuple[Any, ...]:
    plan = sweep.plan
    cells = frozenset(trial.cell for trial in [*plan.trials, *plan.cut] if not trial.reference)
    return asked_for(plan.request), sweep.kind, cells, frozenset(sweep.ran_on.values())
