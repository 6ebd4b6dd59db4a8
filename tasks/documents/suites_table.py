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
from tasks.report.sections.data_loading import WORKERS, saturation

NOTHING = "Not measured with repeats yet."
ONCE = "Each cell once, so nothing is decided"
TWINS = "One cell against itself"
RECORDS = "Earlier records, without verdicts"


def suites_table(suites: Sequence[SuiteInfo], pages: Sequence[Page], root: Path, shown: Path) -> str:
    """A row for each suite, as Markdown; links are from `root`, the README's folder. `shown`: the sweep whose table stands above.

    Raises ResultsError, DamagedFile.
    """
    rows = [f"| {md(suite.name)} | {md(suite.description)} | {_measured(suite.name, pages, root, shown)} |" for suite in suites]
    return "\n".join(["| suite | what it asks | measured so far |", "|---|---|---|", *rows])


def _measured(suite: str, pages: Sequence[Page], root: Path, shown: Path) -> str:
    """What each published sweep of the suite found; then the pages whose cells ran once, those of one cell against itself, and others."""
    told, more = list[str](), dict[str, list[str]]()
    for page in pages:
        link = f"[{md(page.name)}]({page.folder.relative_to(root).as_posix()}/README.md)"
        found = [_found(sweep, link, shown) for sweep in page.sweeps if sweep.plan.suite.suite == suite]
        told += [one for one in found if one.startswith("[")]
        for what in dict.fromkeys([*found, *([RECORDS] if suite in page.suites else [])]):
            if what in (ONCE, TWINS, RECORDS) and not any(one.startswith(link) for one in told):
                more.setdefault(what, []).append(link)
    lines = told or ([] if TWINS in more else [NOTHING])
    return "<br>".join([*lines, *(f"{what}: {', '.join(links)}." for what, links in more.items())])


def _found(sweep: SweepOnPage, link: str, shown: Path) -> str:
    """What one sweep found, with its page, or why that is not said here."""
    if sweep.kind == "A/A":
        return TWINS
    said = "the table above." if sweep.folder == shown else md(finding(sweep))
    if not said:
        return ONCE
    return f"{link}: {md(sweep.devices)}, profile {md(sweep.plan.profile)}, {sweep.trials}: {said}"


def finding(sweep: SweepOnPage) -> str:
    """What a published sweep found, as its page's headline says it; empty where each cell ran once, unless it asked what fits.

    One line of a table has room for one answer: how many DataLoader processes are enough is said of the best cell's row alone, where the
    sweep's table is about them. Groups of one cell are left out where a sentence holds of all groups together, such as how rates grow.
    """
    report = report_of(report_source(load_sweep(sweep.folder)), head=True)
    if not sweep.repeated:
        return report.fits
    together = [line for line in (report.fits, *report.scaling) if line]
    if len(report.answers) > 1 and together:
        compared = [answer.line for answer in report.answers if answer.compared > 1]
        return f"{'; '.join([line.removesuffix('.') for line in together] + compared)}."
    best = report.answer.best if report.answer and sweep.plan.suite.report.columns == WORKERS else None
    loading = [row.sentence for row in saturation(report.cells, of=best)] if best else []
    return " ".join([f"{headline_of(report).found}.", *loading])
