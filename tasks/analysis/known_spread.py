"""The known spread that a sweep's report uses: kept in the sweep's folder once the sweep has ended, so that its report stays the same."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from pydantic import Field

from cluster.trial_layout import KNOWN_SPREAD
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.strict import Strict
from experiments.json_file import read_model
from experiments.metric import Scale
from experiments.metrics import metric_of
from experiments.stats.replication import Replication
from tasks.analysis.cell import numbers
from tasks.analysis.results import Sweep
from tasks.analysis.spread_history import KnownSpread, KnownSpreads, Place, learn, replications
from tasks.analysis.spread_store import PastSweeps, counts, device_of, past_trials, read_spreads
from tasks.analysis.trial_row import TrialRow

_log = logging.getLogger(__name__)


class KnownAt(Strict):
    """A place and what is known there."""

    pool: str
    device: str | None
    workload: str | None = Field(default=None, description="null in what files of schema 1 had: learned from all workloads")
    metric: str
    known: KnownSpread


class KeptSpread(Strict):
    """known_spread.json. `elsewhere`: a cell (by its hash) -> where another host's mean will land. It names no host."""

    schema_version: int = 3
    places: list[KnownAt]
    elsewhere: dict[str, Replication]
    cells: list[str] | None = Field(default=None, description="hashes of the cells that were asked for; null before schema 3: all then")


@dataclass(frozen=True)
class SweepKnowledge:
    """What a sweep's report knows from outside the sweep. `elsewhere` by the hash of the cell, of those `cells` that were asked for."""

    spreads: KnownSpreads
    elsewhere: dict[str, Replication]
    cells: frozenset[str] = frozenset()


NOTHING = SweepKnowledge(KnownSpreads({}), {})


def known_for(sweep: Sweep) -> SweepKnowledge:
    """What the sweep's folder keeps; what it does not have from the sweeps beside it, without the sweep itself.

    A file of the store that cannot be read is logged and skipped.
    """
    kept = _kept(sweep) or NOTHING
    missing, new = _missing(sweep, kept), _cells(sweep) - kept.cells
    if not missing and not new:
        return kept
    devices = {place.device for place in missing} | {device_of(row) for row in sweep.rows if row.trial.cell in new}
    past = read_spreads(sweep.dir.parent, devices=devices, without=[sweep.sweep_id])
    for path in past.damaged:
        _log.warning("%s is damaged and was skipped; `sweep spread --rebuild` writes it again", path)
    places = {**kept.spreads.places, **{place: learn(past, place) for place in missing}}
    return SweepKnowledge(KnownSpreads(places), {**_elsewhere(sweep, past, new), **kept.elsewhere}, _cells(sweep))


def keep_known(sweep: Sweep) -> bool:
    """Write known_spread.json once every trial of the sweep has ended; what it has is never changed. Returns whether it is there."""
    if not sweep.ended:
        return False
    if not spread_is_kept(sweep):
        knowledge = known_for(sweep)
        places = [KnownAt(**place._asdict(), known=known) for place, known in knowledge.spreads.places.items()]
        kept = KeptSpread(places=places, elsewhere=knowledge.elsewhere, cells=sorted(knowledge.cells))
        atomic_write(sweep.dir / KNOWN_SPREAD, kept.model_dump_json(indent=1) + "\n")
    return True


def spread_is_kept(sweep: Sweep) -> bool:
    """Whether the sweep's folder has all that `known_for` gives, so that no other sweep's file is read for it."""
    kept = _kept(sweep)
    return kept is not None and not _missing(sweep, kept) and _cells(sweep) <= kept.cells


def _kept(sweep: Sweep) -> SweepKnowledge | None:
    try:
        kept = read_model(sweep.dir / KNOWN_SPREAD, KeptSpread, "the report uses what is known now")
    except DamagedFile as error:
        _log.warning("%s", error)
        return None
    if kept is None:
        return None
    places = {Place(at.pool, at.device, at.workload, at.metric): at.known for at in kept.places}
    spreads = KnownSpreads(places)
    return SweepKnowledge(spreads, kept.elsewhere, _cells(sweep, spreads) if kept.cells is None else frozenset(kept.cells))


def _missing(sweep: Sweep, kept: SweepKnowledge) -> list[Place]:
    return [place for place in places_of(sweep) if not kept.spreads.has(place)]


def _cells(sweep: Sweep, known: KnownSpreads | None = None) -> frozenset[str]:
    """Those with a trial that counts, where their metric has a known spread at all; with `known` those that are at its places alone."""
    if not places_of(sweep):
        return frozenset()
    metric, trials = sweep.plan.suite.report.metric, [row for row in sweep.rows if counts(row)]
    elsewhere = {row.trial.cell for row in trials if known is not None and not known.has(place_of(row, metric))}
    return frozenset(row.trial.cell for row in trials) - elsewhere


def places_of(sweep: Sweep) -> list[Place]:
    """Where each trial that counts ran, with its workload and the sweep's metric. Nothing where a value has no logarithm: see
    `on_a_scale_for`."""
    metric = sweep.plan.suite.report.metric
    values = numbers(row.summary.get(metric) for row in sweep.rows if row.outcome == "ok")
    if metric_of(metric).scale is Scale.LOG and any(value <= 0 for value in values):
        return []
    return list(dict.fromkeys(place_of(row, metric) for row in sweep.rows if counts(row)))


def place_of(row: TrialRow, metric: str) -> Place:
    """Where what past sweeps know of a trial's metric is looked for."""
    return Place(row.trial.pool, device_of(row), row.trial.workload, metric)


def _elsewhere(sweep: Sweep, past: PastSweeps, cells: Collection[str]) -> dict[str, Replication]:
    """Of these cells; all cells of their devices tell it."""
    metric = sweep.plan.suite.report.metric
    devices = {device_of(row) for row in sweep.rows if row.trial.cell in cells}
    rows: dict[str, list[TrialRow]] = {}
    for row in sweep.rows:
        if device_of(row) in devices:
            rows.setdefault(row.trial.cell, []).append(row)
    own = {cell: trials for cell, group in rows.items() if (trials := past_trials(group))}
    return {cell: range_ for cell, range_ in replications(past, own, metric).items() if cell in cells}
