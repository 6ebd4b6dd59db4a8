"""report.md and report.html of what others measured. Every value of theirs is escaped."""

from __future__ import annotations

from pathlib import Path

from cluster.trial_layout import REPORT, REPORT_PAGE
from experiments.atomic_file import atomic_write
from tasks.imports.model import Imported
from tasks.imports.text import NOT_OURS, headline, sections
from tasks.report.html import render_page
from tasks.report.markdown import render_text


def write_pages(imported: Imported, folder: Path) -> Path:
    """Write both, each whole or not at all; returns the page. Raises OSError."""
    values = {"imported": imported, "headline": headline(imported), "about": NOT_OURS, "sections_": sections(imported)}
    atomic_write(folder / REPORT, render_text("imported.md.jinja", **values))
    atomic_write(folder / REPORT_PAGE, render_page("imported.html", **values))
    return folder / REPORT_PAGE
