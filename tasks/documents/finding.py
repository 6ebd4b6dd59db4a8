"""What a published sweep found, in one line of a table."""

from __future__ import annotations

from tasks.analysis.results import load_sweep
from tasks.documents.published import SweepOnPage
from tasks.report.headline import headline_of
from tasks.report.model import Report, report_of, report_source
from tasks.report.sections.data_loading import WORKERS, saturation


def head_of(sweep: SweepOnPage) -> Report | None:
    """A published sweep's report without its sections; None of one cell against itself, of which nothing is found. Raises ResultsError,
    DamagedFile."""
    return None if sweep.kind == "A/A" else report_of(report_source(load_sweep(sweep.folder)), head=True)


def finding(sweep: SweepOnPage, report: Report | None) -> str:
    """What a published sweep found, as its page's headline says it; empty where each cell ran once, unless it asked what fits, and of one
    cell against itself. `report`: its head_of.

    One line of a table has room for one answer: how many DataLoader processes are enough is said of the best cell's row alone, where the
    sweep's table is about them. Groups of one cell are left out where a sentence holds of all groups together, such as how rates grow.
    """
    if report is None:
        return ""
    if not sweep.repeated:
        return report.fits
    if len(report.answers) > 1 and report.of_all:
        compared = [answer.line for answer in report.answers if answer.compared > 1]
        return f"{'; '.join([*report.of_all, *compared])}."
    best = report.answer.best if report.answer and sweep.plan.suite.report.columns == WORKERS else None
    loading = [row.sentence for row in saturation(report.cells, of=best)] if best else []
    return " ".join([f"{headline_of(report).found}.", *loading])
