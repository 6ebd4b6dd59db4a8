"""README's table of suites: what each asks, which sweep of it tells most, how often that ran, and the best value of each comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from experiments.spec.load import SuiteInfo
from tasks.documents.in_short import InShort
from tasks.report.markdown import md
from tasks.report.published_beside import ENOUGH
from tasks.report.published_pages import Page, SweepOnPage

NOTHING = "not measured with repeats yet"
ABOVE = "the table above"
MORE = "more"
ONCE = "each cell once, so nothing is decided"
AGAINST_ITSELF = "one cell against itself"


def suites_table(suites: Sequence[SuiteInfo], pages: Sequence[Page], found: Mapping[Path, InShort], root: Path, shown: Path) -> str:
    """A row for each suite, as Markdown; links are from `root`, the README's folder.

    `found`: what each published sweep found, by its folder. `shown`: the sweep whose table is above.
    """
    rows = [f"| {md(suite.name)} | {md(suite.description)} | {_measured(suite.name, pages, found, root, shown)} |" for suite in suites]
    return "\n".join(["| suite | what it asks | measured | best measured there |", "|---|---|---|---|", *rows])


def _measured(suite: str, pages: Sequence[Page], found: Mapping[Path, InShort], root: Path, shown: Path) -> str:
    """Two fields. The sweep whose table is shown, and the suite's one that tells most; then its other pages, by what they hold. And what
    those two found."""
    sweeps = [(page, sweep) for page in pages for sweep in page.sweeps if sweep.plan.suite.suite == suite]
    above = [(page, sweep) for page, sweep in sweeps if sweep.folder == shown]
    telling = [(page, sweep) for page, sweep in sweeps if found[sweep.folder].lines and sweep.folder != shown]
    most = sorted(telling, key=lambda one: _rank(one[1], found[one[1].folder]))[-1:]
    links: dict[str, list[str]] = {}
    for page in pages:
        what = _holds([sweep for of, sweep in sweeps if of is page], found)
        if what and all(page is not told for told, _ in (*above, *most)):
            links.setdefault(what, []).append(_link(page, root))
    told = [_told(page, sweep, root) for page, sweep in above + most] or ([] if {MORE, AGAINST_ITSELF} & links.keys() else [NOTHING])
    where = [*told, *(f"{what}: {', '.join(links[what])}" for what in (MORE, ONCE, AGAINST_ITSELF) if what in links)]
    best = [*(ABOVE for _ in above), *(line for _, sweep in most for line in found[sweep.folder].lines)]
    return f"{'<br>'.join(where)} | {'<br>'.join(best) or '–'}"


def _rank(sweep: SweepOnPage, found: InShort) -> tuple[int, float, float, str, int, float]:
    """The sweep that is told has the highest: enough repeats, then the share of its groups of cells that have a winner, then of those where
    that is not the baseline, then the day, and of one day the most repeats. So a later sweep that decided less, or only that a setting is
    no gain, does not hide what is known."""
    created = sweep.plan.created_at
    return min(sweep.repeats, ENOUGH), found.won, found.gained, f"{datetime.fromtimestamp(created, UTC):%Y-%m-%d}", sweep.repeats, created


def _holds(sweeps: Sequence[SweepOnPage], found: Mapping[Path, InShort]) -> str:
    """What a page has of a suite; empty for none of its sweeps."""
    if any(found[sweep.folder].lines or (sweep.repeated and sweep.kind != "A/A") for sweep in sweeps):
        return MORE
    return "" if not sweeps else AGAINST_ITSELF if all(sweep.kind == "A/A" for sweep in sweeps) else ONCE


def _told(page: Page, sweep: SweepOnPage, root: Path) -> str:
    what = sweep.plan.suite.report.title or sweep.plan.suite.description
    measured = ", ".join(part for part in (sweep.devices, sweep.precision) if part)
    return f"{_link(page, root)}: {md(what.rstrip('.'))}; {md(measured)}, {sweep.trials}"


def _link(page: Page, root: Path) -> str:
    return f"[{md(page.name)}]({page.folder.relative_to(root).as_posix()}/README.md)"
