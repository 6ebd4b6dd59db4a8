"""The index: what changed last night, then all cells with their state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from experiments.regression.definition import METRICS
from tasks.nightly.report import change_of
from tasks.report.html import render_page
from tasks.report.text_format import quantity
from tasks.site.addresses import INDEX
from tasks.site.board import Stand, board_of
from tasks.site.history import Track
from tasks.site.list_pages import list_pages
from tasks.site.sparkline import NIGHTS, sparkline
from tasks.site.state import Kind
from tasks.site.words import Commits

_TONES = {
    Kind.WORSE: "slower",
    Kind.BETTER: "faster",
    Kind.UNDECIDED: "undecided",
    Kind.MISSING: "absent",
    Kind.RECORDED: "dim",
    Kind.GONE: "dim",
}


def index_pages(
    stands: Sequence[tuple[Track, Sequence[Stand]]], left_out: Sequence[str], commits: Commits, now: datetime
) -> dict[str, str]:
    """Address -> page: the first, and further ones where all cells do not fit on one. `now`: in UTC."""
    cells = sorted((stand for _, own in stands for stand in own), key=lambda stand: (stand.state.kind, stand.cell.cell.name))
    options = _options(cells)
    rows = [_row(stand, options, len(stands) > 1) for stand in cells]
    boards = [board_of(track, own, commits, now.date()) for track, own in stands]
    filters = [{"place": place, "title": title, "options": values} for place, (title, values) in enumerate(options) if len(values) > 1]
    nothing = "No night yet: `sweep nightly` runs one." if not stands else "No cell was judged yet."
    made = now.strftime("%Y-%m-%d %H:%M")
    return list_pages(
        INDEX,
        "index.html",
        rows,
        title="Cells by night",
        made=made,
        boards=boards,
        left_out=list(left_out),
        filters=filters,
        nothing=nothing,
    )


def _options(cells: Sequence[Stand]) -> list[tuple[str, list[str]]]:
    """(title, values) of each filter. A cell's tokens are the places of its values, in the same order."""
    kinds = sorted({stand.state.kind for stand in cells})
    return [
        ("State", [kind.title for kind in kinds]),
        ("Suite", sorted({stand.cell.cell.suite for stand in cells})),
        ("Pool", sorted({stand.cell.cell.pool for stand in cells})),
        ("Nights", sorted({stand.track.title for stand in cells})),
    ]


def _row(stand: Stand, options: Sequence[tuple[str, list[str]]], several: bool) -> Markup:
    """A line of the table. `several`: there is more than one branch or definition, which it then names."""
    cell, state = stand.cell.cell, stand.state
    mine = (state.kind.title, cell.suite, cell.pool, stand.track.title)
    item = state.moved[0] if state.moved else state.first
    metric = item.metric if item else cell.metrics[0]
    word = state.word if metric == cell.metrics[0] else f"{METRICS[metric].label} {state.word}"
    series = stand.cell.series.get(metric)
    notes = [stand.track.title if several else "", state.why if state.kind in (Kind.MISSING, Kind.GONE) else ""]
    html = render_page(
        "site/row.html",
        tokens=".".join(str(values.index(value)) for (_, values), value in zip(options, mine, strict=True)),
        address=stand.address,
        cell=cell,
        note="; ".join(text for text in notes if text),
        tone=_TONES.get(state.kind, ""),
        word=word,
        change=change_of(item) if item and state.kind not in (Kind.MISSING, Kind.GONE) else "–",
        value=quantity(item.value, METRICS[metric]) if item and item.value is not None else "–",
        spark=sparkline(series.points(stand.track.nights[-2 * NIGHTS :])) if series else "",
        date=stand.track.history.nights[state.measured].date if state.measured is not None else "never",
    )
    return Markup(html)  # noqa: S704 - of a template, which escapes
