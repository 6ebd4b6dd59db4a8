"""An SVG file as part of an HTML page."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.report.figures.style import INK


def inline_svg(path: Path, title: str, prefix: str) -> str:
    """The SVG as it goes into a page: ink follows the page's colour, ids are the figure's own, with a name for those who cannot see it."""
    text = path.read_text()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(xlink:href="#|href="#|url\(#)(?!' + prefix + "-)", rf"\g<1>{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
