"""report.html and comparison.html: one file each, nothing to fetch. Jinja2 escapes every value; only our own SVG goes in as markup."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.report.figures.inline_svg import inline_svg
from tasks.report.headline import headline_of
from tasks.report.model import Report

_TEMPLATES = Path(__file__).with_name("templates")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["inline"] = _inline
    return environment


def render_page(template: str, **values: Any) -> str:
    """One page from a template beside this file, with the style sheet inside it."""
    style = Markup((_TEMPLATES / "page.css").read_text())  # noqa: S704 - our own file
    return _environment().get_template(template).render(style=style, **values)


def render_html(report: Report) -> str:
    """The report as one self-contained page, with its figures inside it."""
    return render_page("report.html", report=report, headline=headline_of(report))


def _inline(path: Path, title: str, prefix: str) -> Markup:
    """A figure's SVG file as markup. `prefix` keeps its ids apart from those of other figures on the page."""
    return Markup(inline_svg(path, title, prefix))  # noqa: S704 - matplotlib escapes
