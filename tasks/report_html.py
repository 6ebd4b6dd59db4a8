"""report.html and comparison.html: one file each, nothing to fetch. Jinja2 escapes every value; only our own SVG goes in as markup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.figures import inline_svg
from tasks.published_table import PUBLISHED_ABOUT, PUBLISHED_TITLE
from tasks.report_data import PROFILE, SCALING, Report
from tasks.spikes import ABOUT as SPIKES

_HERE = Path(__file__).parent


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False
    )


def render_page(template: str, **values: Any) -> str:
    """One page from a template beside this file, with the style sheet inside it."""
    style = Markup((_HERE / "page.css").read_text())  # noqa: S704 - our own file
    return _environment().get_template(template).render(style=style, **values)


def render_html(report: Report, figures: Sequence[tuple[str, Path]]) -> str:
    """The report as one self-contained page; `figures` are (title, SVG file) drawn by tasks.figures."""
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
