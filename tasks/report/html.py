"""report.html and comparison.html: one file each, nothing to fetch. Jinja2 escapes every value; only our own SVG goes in as markup."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tasks.report.figures.inline_svg import inline_svg
from tasks.report.filters import Filters
from tasks.report.headline import headline_of
from tasks.report.model import Report
from tasks.report.text_format import code_spans

_DASHED = re.compile(r"(?<![\w.-])(?=[\w.-]{3,24}(?![\w.-]))[\w.]+(?:-[\w.]+)*-\d[\w.]*(?:-[\w.]+)*")  # of up to 24 characters
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
    environment.filters.update(inline=_inline, prose=prose, unbroken=_unbroken)
    return environment


def render_page(template: str, **values: Any) -> str:
    """One page from a template beside this file, with the style sheet inside it."""
    return _environment().get_template(template).render(style=asset("page.css"), **values)


@cache
def asset(name: str) -> Markup:
    """A style sheet or script beside the templates, as it goes into a page."""
    return Markup((_TEMPLATES / name).read_text())  # noqa: S704 - our own file


def script_values(*names: str) -> dict[str, Markup | str]:
    """What a template needs of its script, which is these files one after the other: `script`, and the `script_hash` of its policy."""
    script = Markup("").join(asset(name) for name in names)
    return {"script": script, "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"}


def render_html(report: Report) -> str:
    """The report as one self-contained page, with its figures inside it, and its script, the only one that the page's policy lets run."""
    return render_page(
        "report.html",
        report=report,
        headline=headline_of(report),
        filters=Filters(report.cells),
        **script_values("copy.js", "page.js"),
    )


def _unbroken(text: str) -> Markup:
    """Text whose names with a dash before a number, such as MP-4, stay on one line; not what a phone's line has no room for, such as an
    id. By the style, so that what is searched for or copied is MP-4."""
    return Markup(_DASHED.sub(r'<span class="nb">\g<0></span>', str(escape(text))))  # noqa: S704 - escaped


def prose(text: str) -> Markup:
    """A sentence of ours; what stands in backquotes in it is shown as code, and the names of settings are not broken."""
    shown = (Markup("<code>{}</code>").format(part) if is_code else _unbroken(part) for part, is_code in code_spans(text))
    return Markup("").join(shown)


def _inline(path: Path, title: str, prefix: str) -> Markup:
    """A figure's SVG file as markup. `prefix` keeps its ids apart from those of other figures on the page."""
    return Markup(inline_svg(path, title, prefix))  # noqa: S704 - matplotlib escapes
