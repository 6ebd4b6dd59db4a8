"""README's table of suites: what each asks, what was measured of it last and how often, and the best value of each comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from experiments.spec.load import SuiteInfo
from tasks.documents.published import Page, SweepOnPage
from tasks.report.markdown import md
from tasks.report.published_beside import ENOUGH

NOTHING = "not measured with repeats yet"
ABOVE = "the table above"
MORE = "more"
ONCE = "each cell once, so nothing is decided"
AGAINST_ITSELF = "one cell against itself"


def suites_table(suites: Sequence[SuiteInfo], pages: Sequence[Page], found: Mapping[Path, Sequence[str]], root: Path, shown: Path) -> str:
    """A row for each suite, as Markdown; links are from `root`, the README's folder.

    `found`: what each published sweep found, in lines of Markdown, by its folder (in_short.py). `shown`: the sweep whose table is above.
    """
    rows = [f"| {md(suite.name)} | {md(suite.description)} | {_measured(suite.name, pages, found, root, shown)} |" for suite in suites]
    return "\n".join(["| suite | what it asks | measured last | best measured |", "|---|---|---|---|", *rows])


def _measured(suite: str, pages: Sequence[Page], found: Mapping[Path, Sequence[str]], root: Path, shown: Path) -> str:
    """Two fields. The sweep whose table is shown; the suite's latest other one, of those with the most repeats up to ENOUGH, and of one day
    the one with the most of all; then its other pages, by what they hold. And what those two found."""
    sweeps = [(page, sweep) for page in pages for sweep in page.sweeps if sweep.plan.suite.suite == suite]
    above = [(page, sweep) for page, sweep in sweeps if sweep.folder == shown]
    telling = [(page, sweep) for page, sweep in sweeps if found[sweep.folder] and sweep.folder != shown]
    latest = sorted(telling, key=lambda one: _rank(one[1]))[-1:]
    links: dict[str, list[str]] = {}
    for page in pages:
        what = _holds([sweep for of, sweep in sweeps if of is page], found)
        if what and all(page is not told for told, _ in (*above, *latest)):
            links.setdefault(what, []).append(_link(page, root))
    told = [_told(page, sweep, root) for page, sweep in above + latest] or ([] if {MORE, AGAINST_ITSELF} & links.keys() else [NOTHING])
    where = [*told, *(f"{what}: {', '.join(links[what])}" for what in (MORE, ONCE, AGAINST_ITSELF) if what in links)]
    best = [*(ABOVE for _ in above), *(line for _, sweep in latest for line in found[sweep.folder])]
    return f"{'<br>'.join(where)} | {'<br>'.join(best) or '–'}"


def _rank(sweep: SweepOnPage) -> tuple[int, str, int, float]:
    """The sweep that is told has the highest."""
    created = sweep.plan.created_at
    return min(sweep.repeats, ENOUGH), f"{datetime.fromtimestamp(created, UTC):%Y-%m-%d}", sweep.repeats, created


def _holds(sweeps: Sequence[SweepOnPage], found: Mapping[Path, Sequence[str]]) -> str:
    """What a page has of a suite; empty for none of its sweeps."""
    if any(found[sweep.folder] or (sweep.repeated and sweep.kind != "A/A") for sweep in sweeps):
        return MORE
    return "" if not sweeps else AGAINST_ITSELF if all(sweep.kind == "A/A" for sweep in sweeps) else ONCE


def _told(page: Page, sweep: SweepOnPage, root: Path) -> str:
    what = sweep.plan.suite.report.title or sweep.plan.suite.description
    measured = ", ".join(part for part in (sweep.devices, sweep.precision) if part)
    return f"{_link(page, root)}: {md(what.rstrip('.'))}; {md(measured)}, {sweep.trials}"


def _link(page: Page, root: Path) -> str:
    return f"[{md(page.name)}]({page.folder.relative_to(root).as_posix()}/README.md)"
