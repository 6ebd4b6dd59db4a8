"""Which published sweeps ask the same question on other hosts: the index names them, and so does each page as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

from experiments.config.errors import UserError
from tasks.report.manifest import MANIFEST
from tasks.report.published_pages import Page, SweepOnPage, page_of, sweep_on_page
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


def same_on_others(page: Path, sweeps: Sequence[Path]) -> Mapping[str, Sequence[str]]:
    """Id of a sweep that is about to be on `page` -> names of the pages beside it that have the same on another host. `sweeps`: their
    folders, where they lie by now. A page that cannot be read is none: it must keep no other from being written. Raises ResultsError,
    DamagedFile for one of `sweeps`."""
    own = Page(page, "", [sweep_on_page(sweep) for sweep in sweeps])
    others = []
    for manifest in sorted(page.parent.glob(f"[!.]*/{MANIFEST}")):  # a page that is being written begins with a dot
        if manifest.parent.name != page.name:
            with suppress(UserError, OSError, ValueError):
                others.append(page_of(manifest.parent))
    found = on_other_hosts([own, *others])
    return {
        sweep.folder.name: list(dict.fromkeys(other.name for other, _ in found.get(sweep.folder, ()) if other is not own))
        for sweep in own.sweeps
    }


def _question(sweep: SweepOnPage) -> tuple[Any, ...]:
    plan = sweep.plan
    cells = frozenset(trial.cell for trial in [*plan.trials, *plan.cut] if not trial.reference)
    return asked_for(plan.request), sweep.kind, cells, frozenset(sweep.ran_on.values())
