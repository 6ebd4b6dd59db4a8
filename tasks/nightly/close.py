"""Closing a night: its final verdicts, what was missed, and the changes that have lasted long enough to be accepted."""

from __future__ import annotations

import time

from experiments.regression.history_segments import accepts_itself
from tasks.nightly.accept import accepted
from tasks.nightly.environments import pool_environments
from tasks.nightly.night_run import NightRun
from tasks.nightly.store import CONTROLS, CellVerdict, Dropped, NightStore, verdicts_of
from tasks.sweep.store import SweepStore


def close_night(run: NightRun) -> None:
    """Save the night's final verdicts; from then on it is closed. Accept what has lasted for `accept_after` nights.

    A night that is closed keeps its verdicts: the flow that closed it may have been killed before it accepted anything.
    """
    if not run.night.closed:
        _save_verdicts(run)
    for item in run.night.cell_verdicts:
        _accept_if_it_lasted(run, item)


def _save_verdicts(run: NightRun) -> None:
    verdicts, now = run.verdicts(), run.tonight()
    items, nodes = run.judged()
    first = {(cell.cell, cell.role): cell.metrics[0] for cell in run.night.cells}
    missed = [
        Dropped(cell=cell.cell, name=cell.name, why=_why_missed(run, cell.cell))
        for cell in run.night.cells
        if cell.role == "history" and not now.of(cell.cell, "history").get(run.night.date)
    ]
    run.save(
        judgements=items,
        nodes=nodes,
        probes={item.role: item.verdict for item in items if item.role in CONTROLS and item.metric == first[item.cell, item.role]},
        missed=missed,
        remarks=[*run.night.remarks, *verdicts.creep(now)],
        environments=pool_environments(run.sweep, run.plan),
        closed_at=time.time(),
    )


def _why_missed(run: NightRun, cell: str) -> str:
    """How the cell's trials ended."""
    outcomes = []
    for trial in run.plan.trials:
        if trial.labels["night.cell"] == cell and trial.labels["night.role"] == "history":
            result = run.sweep.result(trial.key)
            outcomes.append(str(result.outcome) if result else "not run")
    return ", ".join(dict.fromkeys(outcomes)) or "not planned"


def _accept_if_it_lasted(run: NightRun, item: CellVerdict) -> None:
    nights, date, needed = run.nights.all(), run.night.date, run.definition.accept_after
    changes = [change for change in run.nights.changes() if (change.cell, change.metric) == (item.cell, item.metric)]
    since = accepts_itself(verdicts_of(nights, item.cell, item.metric), changes, date, needed)
    if since is not None:
        run.nights.accept(accepted(nights, item, since, date, "nights", f"held for {needed} nights"))


def close_unfinished(nights: NightStore, date: str) -> list[str]:
    """Close every night before `date` that nobody finished and nobody is running. Returns a sentence about each.

    Its verdicts stay as they are; every cell without one is missed. A night that was closed before, and not told, is only named.
    """
    sentences = []
    for other in nights.all():
        if other.over or other.date >= date or SweepStore(other.sweep_id).is_held():
            continue
        if other.closed:
            sentences.append(f"Night {other.date} was judged and not told: `sweep nightly {nights.name} --date {other.date}` tells it.")
            continue
        decided = {item.cell for item in other.cell_verdicts}
        missed = [
            Dropped(cell=cell.cell, name=cell.name, why="the night was interrupted")
            for cell in other.cells
            if cell.role == "history" and cell.cell not in decided
        ]
        ended = time.time()
        nights.save(other.model_copy(update={"closed_at": ended, "told_at": ended, "missed": missed}))
        sentences.append(f"Night {other.date} was interrupted and never judged.")
    return sentences
