"""Write the site: read the nights, then page after page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from experiments.config.errors import ConfigError, choose
from experiments.config.paths import runs_root
from tasks.nightly.store import NightStore, night_names
from tasks.site.addresses import INDEX, cell_page, night_report, sweep_report
from tasks.site.board import Stand
from tasks.site.cell_page import CellPages
from tasks.site.folder import SiteFolder, site_folder
from tasks.site.history import DefinitionHistory, Track, read_history, tracks
from tasks.site.index_page import index_pages
from tasks.site.nights_page import nights_pages
from tasks.site.state import cell_state
from tasks.site.sweeps_page import known_imports, known_sweeps, sweeps_pages
from tasks.site.words import Commits
from tasks.sweep.store import SweepStore

REPORT = "report.html"  # of a night or a sweep, in its folder


@dataclass(frozen=True)
class Site:
    """`left_out`: a sentence for each file that is damaged."""

    index: Path
    files: int
    left_out: list[str]


def write_site(
    folder: Path,
    *,
    names: Sequence[str] = (),
    nights: int = 365,
    reports: int = 30,
    commit_url: str | None = None,
    now: datetime | None = None,
) -> Site:
    """Write the site of what is in `runs/` into `folder`.

    `names`: nightly definitions; all that have nights if empty. `nights`: the last so many of each. `reports`: of the last so many nights
    of each, of so many sweeps and of so many imports the report is copied. `commit_url`: see `Commits`. Raises ConfigError for a wrong
    value, SiteError where the folder cannot be written.
    """
    commits, now, root = Commits(commit_url), now or datetime.now(UTC), runs_root()
    known = night_names(root)
    for name in names:
        if name not in known:
            raise ConfigError.one("--name", None, name, "has no nights here", choose(name, known))
    with site_folder(folder) as site:
        histories = [read_history(name, nights, root) for name in list(dict.fromkeys(names)) or known]
        found = [track for history in histories for track in tracks(history)]
        sweeps, problems = known_sweeps(root)
        imports, damaged = known_imports()
        ids = [*(sweep.plan.sweep_id for sweep in sweeps[:reports]), *(one.sweep_id for one in imports[:reports])]
        copied = _copy_reports(site, histories, ids, reports, root)
        stands = [(track, _stands(track)) for track in found]
        _write_cells(site, stands, commits, copied)
        left_out = [problem for history in histories for problem in history.problems]
        pages = index_pages(stands, left_out, commits, now)
        pages |= nights_pages(found, left_out, commits, copied, now)
        pages |= sweeps_pages(sweeps, imports, root, [*problems, *damaged], commits, copied, now)
        for name, page in pages.items():
            site.write(name, page)
        return Site(folder / INDEX, site.finish(), [*left_out, *problems, *damaged])


def _stands(track: Track) -> list[Stand]:
    """The branch's cells that have a state."""
    return [Stand(track, cell, state) for cell in track.history.cells.values() if (state := cell_state(track, cell)) is not None]


def _copy_reports(site: SiteFolder, histories: Sequence[DefinitionHistory], sweeps: Sequence[str], most: int, root: Path) -> frozenset[str]:
    """Copy the reports of the last `most` nights, and of sweeps and imports (ids). Returns their addresses in the site."""
    sources: dict[str, Path] = {}
    for history in histories:
        store = NightStore(history.name, root)
        for facts in history.nights[-most:] if most else []:
            sources[night_report(history.name, facts.date)] = store.folder(facts.date) / REPORT
    for sweep_id in sweeps:
        sources[sweep_report(sweep_id)] = SweepStore(sweep_id, root).dir / REPORT
    there = {address: path for address, path in sources.items() if path.is_file()}
    for address, path in there.items():
        site.copy(path, address)
    return frozenset(there)


def _write_cells(site: SiteFolder, tracks: Sequence[tuple[Track, Sequence[Stand]]], commits: Commits, reports: frozenset[str]) -> None:
    """A page for each cell of each branch, with links to the same cell's other histories."""
    same: dict[str, list[Stand]] = {}
    for stand in (stand for _, own in tracks for stand in own):
        same.setdefault(stand.cell.cell.cell, []).append(stand)
    for track, own in tracks:
        pages = CellPages(track, commits, reports)
        for stand in own:
            others = [(each.track.title, _beside(each)) for each in same[stand.cell.cell.cell] if each is not stand]
            site.write(stand.address, pages.html(stand.cell, stand.state, others))


def _beside(stand: Stand) -> str:
    """The address of a cell's page from another's, which is in the same folder."""
    return cell_page(stand.track, stand.cell.cell.cell).rpartition("/")[2]
