"""report.html and comparison.html: one file each, nothing to fetch. Jinja2 escapes every value; only our own SVG goes in as markup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.report.figures.draw import inline_svg
from tasks.report.model import PROFILE, SCALING, Report
from tasks.report.sections.literature_table import PUBLISHED_ABOUT, PUBLISHED_TITLE
from tasks.report.sections.loss_spikes import ABOUT as SPIKES

_TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def render_page(template: str, **values: Any) -> str:
    """One page from a template beside this file, with the style sheet inside it."""
    style = Markup((_TEMPLATES / "page.css").read_text())  # noqa: S704 - our own file
    return _environment().get_template(template).render(style=style, **values)


def render_html(report: Report, figures: Sequence[tuple[str, Path]]) -> str:
    """The report as one self-contained page; `figures` are (title, SVG file) drawn by tasks.report.figures.draw."""
    drawn = [(title, Markup(inline_svg(path, title, f"f{index}"))) for index, (title, path) in enumerate(figures)]  # noqa: S704 - matplotlib escapes
    return render_page(
        "report.html",
        report=report,
        drawn=drawn,
        scaling_text=SCALING,
        profile_text=PROFILE,
        published_title=PUBLISHED_TITLE,
        published_about=PUBLISHED_ABOUT,
        spikes_text=SPIKES,
    )
