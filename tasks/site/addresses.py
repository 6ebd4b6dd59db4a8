"""The names of the site's files, by which pages link to each other. They stay the same from one night to the next."""

from __future__ import annotations

import hashlib
import re

from tasks.site.history import Track

INDEX, NIGHTS, SWEEPS = "index.html", "nights.html", "sweeps.html"
_MOST = 60  # characters of a part


def cell_page(track: Track, cell: str) -> str:
    """`cells/regression.main.0123456789abcdef.html`."""
    return f"cells/{_part(track.history.name)}.{_part(track.branch)}.{_part(cell)}.html"


def night_report(name: str, date: str) -> str:
    """The copy of a night's report."""
    return f"reports/{_part(name)}.{_part(date)}.html"


def sweep_report(sweep_id: str) -> str:
    """The copy of a sweep's report."""
    return f"reports/{_part(sweep_id)}.html"


def numbered(page: str, number: int) -> str:
    """The page's further parts: index.html, index-2.html, ..."""
    return page if number == 1 else page.replace(".html", f"-{number}.html")


def _part(text: str) -> str:
    """Letters that every file system and server takes, without capitals, which some do not tell apart. Different texts stay different."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", text.lower())[:_MOST]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
