"""The page of a cell on a branch: how it stands, the history of each metric, what happened to it, and its last nights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from experiments.regression.definition import METRICS, word_of
from experiments.stats.verdict import Verdict
from tasks.nightly.pair_text import by_pairs
from tasks.nightly.report import by_whom, change_of
from tasks.nightly.store import CellVerdict
from tasks.report.html import asset, render_page, script_values
from tasks.report.text_format import number, quantity
from tasks.site.addresses import INDEX, NIGHTS, SWEEPS, night_report
from tasks.site.chart import draw_chart
from tasks.site.culprit import Culprit, culprit_of, reasons
from tasks.site.events import MOST, events_of
from tasks.site.history import CellHistory, Track
from tasks.site.list_pages import LIMIT
from tasks.site.series import VERDICTS, Points, Series
from tasks.site.state import CellState
from tasks.site.words import Commits, environment_line, percent_change

_LEAST = 20  # nights that a page shows in any case
_LAST = 14  # nights of its table
_MOST_ENVIRONMENTS = 60  # different ones whose facts the page holds; of more, only what changed


@dataclass(frozen=True)
class Figure:
    """A metric's chart, and the numbers that the page shows of each night in it."""

    title: str
    svg: Markup
    data: Markup


class CellPages:
    """The pages of a branch's cells. `reports`: addresses of the reports that the site has."""

    def __init__(self, track: Track, commits: Commits, reports: frozenset[str]) -> None:
        self._track, self._commits = track, commits
        self._nights = lru_cache(maxsize=8)(partial(_nights_data, track, reports))  # the same for all cells of a pool

    def html(self, cell: CellHistory, state: CellState, others: Sequence[tuple[str, str]]) -> str:
        """A cell's page, below LIMIT bytes: if need be with fewer nights in its charts, which it then says.

        `others`: (title, address) of the same cell's other histories.
        """
        track, pool = self._track, cell.cell.pool
        values = {
            "track": track,
            "cell": cell.cell,
            "state": state,
            "heading": _heading(state),
            "answer": _answer(track, cell, state, self._commits),
            "others": others,
            "environment": next((found for night in reversed(track.facts) if (found := night.environments.get(pool))), {}),
            "judged": track.history.nights[track.last_judged].date if track.last_judged is not None else "",
            "last": track.facts[-1].date,
            "to": {"cells": f"../{INDEX}", "nights": f"../{NIGHTS}", "sweeps": f"../{SWEEPS}"},
            "site_style": asset("site/site.css"),
            **script_values("copy.js", "site/site.js"),
            **_tables(track, cell, self._commits),
        }
        nights = track.nights
        while True:
            figures, shown = _figures(track, cell, nights), (len(nights), len(track.nights))
            html = render_page("site/cell.html", **values, figures=figures, shown=shown, nights_data=self._nights(pool, nights))
            if len(html.encode()) < LIMIT or len(nights) <= _LEAST:
                return html
            nights = nights[max(1, len(nights) // 4) :]


def _heading(state: CellState) -> str:
    """`Slower`, `Missed: crashed`, `Recorded: 2 of the 5 nights that a baseline needs`."""
    why = (state.why or "").removeprefix(f"{state.word}: ")
    return f"{state.word[:1].upper()}{state.word[1:]}{f': {why}' if why else ''}"


def _answer(track: Track, cell: CellHistory, state: CellState, commits: Commits) -> list[dict[str, Any]]:
    """What is said of each metric that changed on the last night; of none, of the first metric."""
    said = []
    for item in state.moved or ([state.first] if state.first else []):
        culprit = culprit_of(track, cell, item) if item.alarm_since else None
        said.append(
            {
                "item": item,
                "label": METRICS[item.metric].label,
                "change": change_of(item),
                "against": "in pairs against an earlier commit" if by_pairs(item) else "against its own past nights",
                "value": quantity(item.value, METRICS[item.metric]),
                "commits": culprit.shown(commits) if culprit else None,
                "why": reasons(item, culprit),
                "commands": _commands(track, item, culprit) if item.verdict is Verdict.SLOWER else [],
            }
        )
    return said


def _commands(track: Track, item: CellVerdict, culprit: Culprit | None) -> list[str]:
    """What to do about a metric that got worse: find the commit, unless a night has, or accept it."""
    around = culprit.between if culprit and not culprit.commit else None
    metric = f" --metric {item.metric} --name {track.history.name}"
    find = [f"sweep bisect {item.cell} {around[0][:12]} {around[1][:12]}{metric}"] if around and around[0] != around[1] else []
    return [*find, f"sweep accept {item.cell}{metric} --note WHY"]


def _figures(track: Track, cell: CellHistory, nights: Sequence[int]) -> list[Figure]:
    """A chart for each metric that has a value, the cell's metrics first and in their order."""
    names = [*cell.cell.metrics, *(metric for metric in cell.series if metric not in cell.cell.metrics)]
    place = {index: at for at, index in enumerate(nights)}
    figures = []
    for name in names:
        points = cell.series[name].points(nights) if name in cell.series else None
        if points is not None and points.value.size:
            figures.append(_figure(track, cell, points, [place[int(index)] for index in points.night]))
    return figures


def _figure(track: Track, cell: CellHistory, points: Points, places: list[int]) -> Figure:
    """`places`: of each of the points' nights among those that the page shows."""
    dates = [track.history.nights[int(index)].date for index in points.night]
    metric = points.metric
    said = cell.series[metric.name].said
    accepted = [
        (_day(change.since), f"{change.since}: a new level, accepted {by_whom(change)}")
        for change in track.history.changes
        if (change.cell, change.metric) == (cell.cell.cell, metric.name)
    ]
    title = f"{metric.label[:1].upper()}{metric.label[1:]}{f', {points.unit}' if points.unit else ''}"
    chart = draw_chart(f"{cell.cell.name}: {title} by night", points, np.array([_day(text) for text in dates]), dates, accepted)
    data = {
        "unit": points.unit,
        "words": [word_of(verdict, metric.name) for verdict in VERDICTS],
        "night": places,
        "x": chart.x.tolist(),
        "y": chart.y.tolist(),
        "value": [float(f"{value:.5g}") for value in points.value.tolist()],
        "verdict": points.verdict.tolist(),
        "change": [_percents(row) for row in points.change],
        "paired": np.flatnonzero(points.paired).tolist(),
        "said": {at: said[int(index)] for at, index in enumerate(points.night) if int(index) in said},
    }
    return Figure(title, chart.svg, _as_json(data))


def _nights_data(track: Track, reports: frozenset[str], pool: str, nights: Sequence[int]) -> Markup:
    """What the pages say of each night whatever the cell: environments once each, and what changed from one night to the next."""
    facts = [track.history.nights[index] for index in nights]
    changes = track.environment_changes.get(pool, {})
    lines: dict[str, int] = {}
    environment = []
    for night in facts:
        line = environment_line(night.environments.get(pool, {}))
        environment.append(lines.setdefault(line, len(lines)) if line else -1)
    many = len(lines) > _MOST_ENVIRONMENTS
    addresses = [night_report(track.history.name, night.date) for night in facts]
    data = {
        "date": [night.date for night in facts],
        "commit": [f"{(night.code.commit or '')[:10]}{'+' if night.code.dirty else ''}" for night in facts],
        "environment": [] if many else environment,
        "environments": [] if many else list(lines),
        "changed": {at: changes[index] for at, index in enumerate(nights) if index in changes},
        "report": {at: f"../{address}" for at, address in enumerate(addresses) if address in reports},
    }
    return _as_json(data)


def _tables(track: Track, cell: CellHistory, commits: Commits) -> dict[str, Any]:
    """What happened, and the last nights with every metric."""
    events = events_of(track, cell, commits)
    metrics = [name for name in cell.cell.metrics if name in cell.series]
    columns = {name: cell.series[name].points(track.nights[-_LAST:]) for name in metrics}
    rows = []
    for index in reversed(track.nights[-_LAST:]):
        facts = track.history.nights[index]
        entries = [_entry(cell.series[name], columns[name], index) for name in metrics]
        if any(text for text, *_ in entries) or index in cell.absent or index in cell.planned:
            rows.append({"date": facts.date, "commit": commits.of(facts.code), "entries": entries, "why": cell.absent.get(index, "")})
    return {"events": events[:MOST], "more_events": len(events) - MOST, "columns": [METRICS[name].label for name in metrics], "rows": rows}


def _entry(series: Series, points: Points, index: int) -> tuple[str, str, str, str]:
    """(value with unit, its change and interval, by pairs where they decided, verdict, what pairs say) on one night; empty texts where it
    was not measured."""
    found = np.flatnonzero(points.night == index)
    if not found.size:
        return "", "", "", ""
    at = int(found[0])
    middle, low, high = points.change[:, at].tolist()
    change = percent_change(middle, low, high) if np.isfinite([middle, low, high]).all() else ""
    value, verdict = f"{number(float(points.value[at]))} {points.unit}".rstrip(), VERDICTS[int(points.verdict[at])]
    return value, change, str(verdict), series.said.get(index, "")


def _percents(shares: NDArray[np.float64]) -> list[float | None]:
    """In per cent, to a tenth; null where it is not known."""
    return [round(100 * share, 1) if np.isfinite(share) else None for share in shares.tolist()]


def _day(text: str) -> int:
    return date.fromisoformat(text).toordinal()


def _as_json(value: Any) -> Markup:
    """JSON for an element `script`: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 - escaped above
