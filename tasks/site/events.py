"""What happened to a cell on a branch, newest first: alarms, accepted changes, other environments, nights without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from experiments.regression.definition import METRICS
from tasks.nightly.report import by_whom, change_of
from tasks.nightly.store import CellVerdict
from tasks.report.text_format import plural
from tasks.site.culprit import culprit_of, reasons
from tasks.site.history import CellHistory, Track
from tasks.site.words import Commits

MOST = 40  # events that a page shows


@dataclass(frozen=True)
class Event:
    """`date`: its first night, by which events are in order. `tone`: slower, faster or nothing. `more`: commits, causes, who accepted."""

    date: str
    when: str
    what: str
    tone: str = ""
    change: str = ""
    more: Markup | str = ""


def events_of(track: Track, cell: CellHistory, commits: Commits) -> list[Event]:
    """All events of the cell's nights on the branch, newest first."""
    found = [*_alarms(track, cell, commits), *_accepted(track, cell), *_environments(track, cell), *_absences(track, cell)]
    return sorted(found, key=lambda event: event.date, reverse=True)


def _alarms(track: Track, cell: CellHistory, commits: Commits) -> Iterable[Event]:
    """One event for each alarm: its first and last night, and the verdict of the first."""
    nights = frozenset(track.nights)
    for metric, series in cell.series.items():
        runs: dict[tuple[str, str], list[tuple[str, CellVerdict]]] = {}
        for index, item in series.alarms.items():
            if index in nights:
                date = track.history.nights[index].date
                runs.setdefault((item.alarm_since or date, item.verdict), []).append((date, item))
        for (since, verdict), run in runs.items():
            first, last = run[0][0], run[-1][0]
            item = run[0][1]
            culprit = culprit_of(track, cell, item)
            lines = [Markup("commits {}").format(culprit.shown(commits)), *map(escape, reasons(item, culprit))]
            yield Event(
                date=since,
                when=_when(min(since, first), last, len(run)),
                what=f"{METRICS[metric].label} {item.word}",
                tone=str(verdict),
                change=change_of(item),
                more=Markup("; ").join(lines),
            )


def _accepted(track: Track, cell: CellHistory) -> Iterable[Event]:
    dates = {facts.date for facts in track.facts}
    for change in track.history.changes:
        if change.cell == cell.cell.cell and {change.since, change.accepted_on} & dates:
            what = f"{METRICS[change.metric].label}: the level since {change.since} accepted"
            yield Event(change.accepted_on, change.accepted_on, what, more=escape(by_whom(change)))


def _environments(track: Track, cell: CellHistory) -> Iterable[Event]:
    for index, text in track.environment_changes.get(cell.cell.pool, {}).items():
        date = track.history.nights[index].date
        yield Event(date, date, "environment changed", more=escape(text))


def _absences(track: Track, cell: CellHistory) -> Iterable[Event]:
    """Runs of nights that did not measure the cell, each with its reason; from the first night that planned it."""
    first = min(cell.planned)
    reasons = [(index, _why_absent(cell, index)) for index in track.nights if index >= first]
    for why, group in groupby(reasons, key=lambda entry: entry[1]):
        run = [track.history.nights[index].date for index, _ in group]
        if why:
            yield Event(run[0], _when(run[0], run[-1], len(run)), why)


def _why_absent(cell: CellHistory, index: int) -> str:
    return cell.absent.get(index) or ("" if index in cell.planned else "not planned")


def _when(first: str, last: str, nights: int) -> str:
    return first if first == last else f"{first} to {last} ({plural(nights, 'night')})"
