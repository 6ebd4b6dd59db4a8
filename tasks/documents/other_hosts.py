"""Which published sweeps ask the same question on other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from tasks.campaign.question import asked_for
from tasks.documents.published import Page, SweepOnPage


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


def _question(sweep: SweepOnPage) -> tuple[Any, ...]:
    plan = sweep.plan
    cells = frozenset(trial.cell for trial in [*plan.trials, *plan.cut] if not trial.reference)
    return asked_for(plan.request), sweep.kind, cells, frozenset(sweep.ran_on.values())
