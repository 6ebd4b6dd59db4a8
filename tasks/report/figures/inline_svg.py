"""An SVG file as part of an HTML page: smaller than matplotlib writes it, and the same to look at."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tasks.report.figures.style import INK

_STYLE = re.compile(r' style="([^"]*)"')
_COORDINATES = re.compile(r' (?:d|x|y|width|height|points|transform)="[^"]*"')
_CURVE = re.compile(r"\n[CQ] ")
_MANY = 3  # elements of one style, from which on it becomes a class


def inline_svg(path: Path, title: str, prefix: str) -> str:
    """The SVG as markup for a page. Ink follows the page's colour, ids and classes start with `prefix`, and screen readers read `title`."""
    text = path.read_text()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<[^>]+>", lambda tag: _smaller(tag[0]), text)
    text = _with_own_ids(text, prefix)
    text = re.sub(r"<g>\s*(<(?:path|use|text)[^>]*/>)\s*</g>", r"\1", re.sub(r"<g/>|<g>\s*</g>", "", text))
    text = re.sub(r"\s*\n\s*", "\n", text)
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return _with_classes(text.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1), prefix)


def _smaller(tag: str) -> str:
    """A tag with coordinates to a tenth of a point, in the page's own type, without turns by nothing."""
    tag = _COORDINATES.sub(lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), tag)
    tag = re.sub(r" transform=\"rotate\(-0 [^\"]*\"", "", re.sub(r"font-family: [^;\"]*;? ?", "", tag))
    line = "" if _CURVE.search(tag) else "(?:L )?"  # points after the first are lines to in any case, except behind a curve
    return re.sub(rf"\s*\n{line}\s*", " ", tag)


def _with_own_ids(text: str, prefix: str) -> str:
    """Ids that something refers to, short and apart from those of other figures on the page; no others."""
    used = dict.fromkeys(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", text))
    short = {name: f"{prefix}i{place}" for place, name in enumerate(used)}
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{short[found[1]]}"' if found[1] in short else "", text)
    return re.sub(r'(href="#|url\(#)([^")]+)', lambda found: found[1] + short[found[2]], text)


def _with_classes(text: str, prefix: str) -> str:
    """What many elements have as their style becomes a class of theirs."""
    counts = Counter(_STYLE.findall(text))
    names = {style: f"{prefix}c{place}" for place, style in enumerate(style for style, count in counts.items() if count >= _MANY)}
    text = _STYLE.sub(lambda found: f' class="{names[found[1]]}"' if found[1] in names else found[0], text)
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    return text.replace(">", f"><style>{rules}</style>", 1) if rules else text
