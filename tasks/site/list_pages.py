"""A page with a long list, as several pages of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from tasks.report.html import asset, render_page, script_values
from tasks.site.addresses import INDEX, NIGHTS, SWEEPS, numbered

LIMIT = 300_000  # bytes of a page
_SPARE = 8_000  # of them, for links to the other pages


def list_pages(name: str, template: str, rows: Sequence[Markup], **values: Any) -> dict[str, str]:
    """Address -> page. The first has all `values`; the others have the template's `page` above 1, by which it leaves out what is said once.

    At least one page, and on each at least one row, where there is one.
    """

    def render(own: Sequence[Markup], page: int, pages: Sequence[str]) -> str:
        to = {"cells": INDEX, "nights": NIGHTS, "sweeps": SWEEPS}
        script = script_values("copy.js", "site/site.js")
        return render_page(
            f"site/{template}", rows=own, page=page, pages=pages, to=to, site_style=asset("site/site.css"), **values, **script
        )

    rooms = [LIMIT - _SPARE - len(render(rows[:1], page, []).encode()) for page in (1, 2)]
    parts = _parts(rows, *rooms)
    addresses = [numbered(name, number) for number in range(1, len(parts) + 1)]
    return {address: render(part, number, addresses) for number, (address, part) in enumerate(zip(addresses, parts, strict=True), 1)}


def _parts(rows: Sequence[Markup], first: int, other: int) -> list[list[Markup]]:
    """The rows in order, in parts of at most `first` bytes and, of the later parts, `other` bytes."""
    parts: list[list[Markup]] = [[]]
    left = first
    for row in rows:
        size = len(row.encode()) + 1
        if size > left and parts[-1]:
            parts.append([])
            left = other
        parts[-1].append(row)
        left -= size
    return parts
