"""Accepting a change as the new baseline: its record, and the cell that a person names."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.regression.history_segments import Change
from tasks.nightly.store import CHANGED, CellVerdict, Night, NightCell, NightStore, person
from tasks.sweep.store import StoreError, SweepStore
from tasks.tracking.client import connect
from tasks.tracking.runs import SweepRuns


def accepted(nights: Sequence[Night], item: CellVerdict, since: str, on: str, by: str, note: str) -> Change:
    """The record of an accepted change, with what changed in the environment on its first night."""
    first = [old for night in nights if night.date == since for old in night.cell_verdicts]
    causes = [cause for old in first if (old.cell, old.metric) == (item.cell, item.metric) for cause in old.causes]
    return Change(cell=item.cell, metric=item.metric, since=since, verdict=item.verdict, accepted_on=on, by=by, note=note, cause=causes)


def accept_change(name: str, cell: str, metric: str | None, date: str | None, note: str) -> list[str]:
    """Accept the changes of a cell on a night; of all its metrics if `metric` is None. Returns a line for each record.

    `cell`: see `find_cell`. `date`: None is the last night with verdicts. Raises StoreError where there is no such night, cell or
    metric, or nothing of it changed.
    """
    store = NightStore(name)
    dates = [night.date for night in store.all() if night.judgements]
    if not dates:
        raise StoreError(f"no night of {name} was judged yet; `sweep nights` shows them")
    night = store.load(date or dates[-1])
    chosen = find_cell([each for each in night.cells if each.role == "history"], cell)
    metrics = sorted({item.metric for item in night.cell_verdicts})
    if metric is not None and metric not in metrics:
        raise StoreError(f"{metric!r} is no metric that {name} judges: {', '.join(metrics)}")
    moved = [item for item in night.cell_verdicts if item.cell == chosen.cell and item.verdict in CHANGED and metric in (None, item.metric)]
    if not moved:
        verdicts = "; ".join(f"{item.metric} {item.word}" for item in night.cell_verdicts if item.cell == chosen.cell) or "not measured"
        raise StoreError(f"nothing of {chosen.name} changed on {night.date}: {verdicts}")
    nights, known, lines = store.all(), store.changes(), []
    for item in moved:
        since = item.alarm_since or night.date
        change = accepted(nights, item, since, _settled_until(dates, known, item, since), person(), note)
        new = store.accept(change)
        lines.append(f"{chosen.name}: {item.metric} {item.word} since {since} {'is the new baseline' if new else 'was accepted before'}")
        if new and (problem := _tag(night, change)):
            lines.append(problem)
    return lines


def _settled_until(judged: Sequence[str], changes: Sequence[Change], item: CellVerdict, since: str) -> str:
    """The last of the nights `judged` whose verdict compared with the level that a change since `since` ends: accepting settles them all,
    or the next would be an open alarm of the new segment, and no later night would count. A later accepted change has settled its own.
    """
    later = [change.since for change in changes if (change.cell, change.metric) == (item.cell, item.metric) and change.since > since]
    return max((date for date in judged if date >= since and all(date < begun for begun in later)), default=since)


def find_cell(cells: Sequence[NightCell], text: str) -> NightCell:
    """The one cell whose id begins with `text`, or whose name has all its words. Raises StoreError that lists them."""
    words = text.lower().split()
    fits = [cell for cell in cells if cell.cell.startswith(text)] or [cell for cell in cells if cell.name == text]
    fits = fits or [cell for cell in cells if all(word in cell.name.lower() for word in words)]
    if len(fits) == 1:
        return fits[0]
    listed = "\n".join(f"  {cell.cell}  {cell.name}" for cell in fits or cells)
    raise StoreError(f"{text!r} is {'more than one cell' if fits else 'no cell of this nightly'}; name one of these:\n{listed}")


def _tag(night: Night, change: Change) -> str | None:
    """Show the record in MLflow. Returns a sentence where that failed; the record in changes.jsonl is complete without it."""
    try:
        client = connect()
        runs = SweepRuns(client, SweepStore(night.sweep_id).load_plan())
        client.set_tag(runs.parent, *change_tag(change))
    except Exception as error:
        return f"recorded here, but not shown in MLflow ({type(error).__name__})"
    return None


def change_tag(change: Change) -> tuple[str, str]:
    """Name and value of the tag that shows a change."""
    text = f"{change.verdict} since {change.since}, by {change.by}: {change.note}"
    return f"night.accepted.{change.cell}.{change.metric}", text[:5000]
