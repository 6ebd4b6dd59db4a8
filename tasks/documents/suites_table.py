"""README's table of suites: what each asks, and what was measured of it so far, in the words of the pages' own headlines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.spec.load import SuiteInfo
from tasks.analysis.results import load_sweep
from tasks.documents.published import Page, SweepOnPage
from tasks.report.headline import headline_of
from tasks.report.markdown import md
from tasks.report.model import report_of, report_source
from tasks.report.sections.data_loading import saturation

NOTHING = "not measured with repeats yet"
TWINS = "A/A"


def suites_table(suites: Sequence[SuiteInfo], pages: Sequence[Page], root: Path) -> str:
    """A row for each suite, as Markdown; links are from `root`, the README's folder. Raises ResultsError, DamagedFile."""
    rows = [f"| {md(suite.name)} | {md(suite.description)} | {_measured(suite.name, pages, root)} |" for suite in suites]
    return "\n".join(["| suite | what it asks | measured so far |", "|---|---|---|", *rows])


def _measured(suite: str, pages: Sequence[Page], root: Path) -> str:
    """What each published sweep of the suite found; then the pages whose cells ran once, and those of one cell against itself."""
    told, once, twins = list[str](), list[str](), list[str]()
    for page, sweep in ((page, sweep) for page in pages for sweep in page.sweeps if sweep.plan.suite.suite == suite):
        link = f"[{md(sweep.devices)}]({page.folder.relative_to(root).as_posix()}/README.md)"
        if sweep.kind == TWINS:
            twins.append(link)
        elif found := finding(sweep):
            told.append(f"{link}, {md(sweep.plan.profile)}, {sweep.trials}: {md(found)}")
        else:
            once.append(link)
    lines = told or [NOTHING]
    lines += [f"Each cell once, so nothing is decided: {', '.join(dict.fromkeys(once))}."] if once else []
    lines += [f"One cell against itself: {', '.join(dict.fromkeys(twins))}."] if twins else []
    return "<br>".join(lines)


def finding(sweep: SweepOnPage) -> str:
    """What a published sweep found, as its page's headline says it, and how many DataLoader processes are enough; empty where each cell ran
    once, unless it asked what fits."""
    report = report_of(report_source(load_sweep(sweep.folder)), head=True)
    if not sweep.repeated:
        return report.fits
    said = headline_of(report)
    loading = [row.sentence for row in saturation(report.cells)]
    return " ".join([said.lines[0], *(f"{line.removesuffix('.')}." for line in [*said.groups, *loading])])
