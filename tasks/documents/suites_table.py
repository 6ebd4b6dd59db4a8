"""README's table of suites: what each asks, and what was measured of it last, in the words of the page's own headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.spec.load import SuiteInfo
from tasks.documents.published import ENOUGH, Page, SweepOnPage
from tasks.report.markdown import md

NOTHING = "Not measured with repeats yet."
MORE = "More"
ONCE = "Each cell once, so nothing is decided"
TWINS = "One cell against itself"


def suites_table(suites: Sequence[SuiteInfo], pages: Sequence[Page], found: Mapping[Path, str], root: Path, shown: Path) -> str:
    """A row for each suite, as Markdown; links are from `root`, the README's folder.

    `found`: what each published sweep found, by its folder (finding.py). `shown`: the sweep whose table stands above.
    """
    rows = [f"| {md(suite.name)} | {md(suite.description)} | {_measured(suite.name, pages, found, root, shown)} |" for suite in suites]
    return "\n".join(["| suite | what it asks | measured last |", "|---|---|---|", *rows])


def _measured(suite: str, pages: Sequence[Page], found: Mapping[Path, str], root: Path, shown: Path) -> str:
    """The sweep whose table is shown; what the suite's latest other one found, of those with the most repeats up to ENOUGH; then its other
    pages, by what they hold."""
    sweeps = [(page, sweep) for page in pages for sweep in page.sweeps if sweep.plan.suite.suite == suite]
    above = [(page, sweep) for page, sweep in sweeps if sweep.folder == shown]
    telling = [(page, sweep) for page, sweep in sweeps if found[sweep.folder] and sweep.folder != shown]
    latest = sorted(telling, key=lambda one: (min(one[1].repeats, ENOUGH), one[1].plan.created_at))[-1:]
    links: dict[str, list[str]] = {}
    for page in pages:
        what = _holds([sweep for of, sweep in sweeps if of is page], found)
        if what and all(page is not told for told, _ in (*above, *latest)):
            links.setdefault(what, []).append(_link(page, root))
    first = [
        _told(page, sweep, "the table above." if sweep.folder == shown else found[sweep.folder], root) for page, sweep in above + latest
    ]
    first = first or ([] if TWINS in links else [NOTHING])
    order = (MORE, ONCE, TWINS)
    return "<br>".join([*first, *(f"{what}: {', '.join(links[what])}." for what in order if what in links)])


def _holds(sweeps: Sequence[SweepOnPage], found: Mapping[Path, str]) -> str:
    """What a page has of a suite; empty for none of its sweeps."""
    if any(found[sweep.folder] for sweep in sweeps):
        return MORE
    return "" if not sweeps else TWINS if all(sweep.kind == "A/A" for sweep in sweeps) else ONCE


def _told(page: Page, sweep: SweepOnPage, said: str, root: Path) -> str:
    return f"{_link(page, root)}: {md(sweep.devices)}, profile {md(sweep.plan.profile)}, {sweep.trials}: {md(said)}"


def _link(page: Page, root: Path) -> str:
    return f"[{md(page.name)}]({page.folder.relative_to(root).as_posix()}/README.md)"
