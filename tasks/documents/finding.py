"""What a published sweep found, in one line of a table."""

from __future__ import annotations

from tasks.analysis.certificates import known_of
from tasks.analysis.results import load_sweep
from tasks.report.certificate_text import certificates_in_brief
from tasks.report.list_line import list_line
from tasks.report.model import Report, report_of, report_source
from tasks.report.published_pages import SweepOnPage


def head_of(sweep: SweepOnPage) -> Report | None:
    """A published sweep's report without its sections; None of one cell against itself, of which none can win. Raises ResultsError,
    DamagedFile."""
    return None if sweep.kind == "A/A" else report_of(report_source(load_sweep(sweep.folder)), head=True)


def finding(sweep: SweepOnPage, report: Report | None) -> str:
    """What a published sweep found, as the contents of its page say it; empty where each cell ran once, unless it asked what fits. Of one
    cell against itself how often its intervals were right. `report`: its head_of. Raises ResultsError, DamagedFile."""
    if report is None:
        return certificates_in_brief(known_of(load_sweep(sweep.folder)))
    return list_line(report) if sweep.repeated else report.fits
