"""An SVG file as part of an HTML page."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.report.figures.style import INK


def inline_svg(path: Path, title: str, prefix: str) -> str:
    """The SVG as markup for a page. Ink follows the page's colour, ids start with `prefix`, and screen readers read `title`."""
    text = path.read_text()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(xlink:href="#|href="#|url\(#)(?!' + prefix + "-)", rf"\g<1>{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
