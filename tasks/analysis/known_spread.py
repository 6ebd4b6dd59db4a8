"""The known spread that a sweep's report uses: kept in the sweep's folder once the sweep has ended, so that its report stays the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.trial_layout import KNOWN_SPREAD
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.strict import Strict
from experiments.json_file import read_model
from experiments.metrics import Scale, metric_of
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
    metric: str
    known: KnownSpread


class KeptSpread(Strict):
    """known_spread.json. `elsewhere`: a cell (by its hash) -> where another host's mean will land. It names no host."""

    schema_version: int = 1
    places: list[KnownAt]
    elsewhere: dict[str, Replication]


@dataclass(frozen=True)
class SweepKnowledge:
    """What a sweep's report knows from outside the sweep. `elsewhere` by the hash of the cell."""

    spreads: KnownSpreads
    elsewhere: dict[str, Replication]


NOTHING = SweepKnowledge(KnownSpreads({}), {})


def known_for(sweep: Sweep) -> SweepKnowledge:
    """What the sweep's folder keeps; what it does not have from the sweeps beside it, without the sweep itself.

    A file of the store that cannot be read is logged and skipped.
    """
    kept = _kept(sweep)
    places = {(at.pool, at.device, at.metric): at.known for at in kept.places} if kept else {}
    missing = [place for place in places_of(sweep) if place not in places]
    if not missing:
        return SweepKnowledge(KnownSpreads(places), kept.elsewhere if kept else {})
    past = read_spreads(sweep.dir.parent, devices={device for _, device, _ in missing}, without=[sweep.sweep_id])
    for path in past.damaged:
        _log.warning("%s is damaged and was skipped; `sweep spread --rebuild` writes it again", path)
    places |= {place: learn(past, place) for place in missing}
    new = _elsewhere(sweep, past, missing)
    return SweepKnowledge(KnownSpreads(places), {**new, **(kept.elsewhere if kept else {})})


def keep_known(sweep: Sweep) -> bool:
    """Write known_spread.json once every trial of the sweep has ended; what it has is never changed. Returns whether it is there."""
    if not sweep.ended:
        return False
    knowledge = known_for(sweep)
    places = [
        KnownAt(pool=pool, device=device, metric=metric, known=known) for (pool, device, metric), known in knowledge.spreads.places.items()
    ]
    text = KeptSpread(places=places, elsewhere=knowledge.elsewhere).model_dump_json(indent=1) + "\n"
    path = sweep.dir / KNOWN_SPREAD
    if not path.is_file() or path.read_bytes() != text.encode():
        atomic_write(path, text)
    return True


def spread_is_kept(sweep: Sweep) -> bool:
    """Whether the sweep's folder has all that `known_for` gives, so that no other sweep's file is read for it."""
    kept = _kept(sweep)
    return kept is not None and {(at.pool, at.device, at.metric) for at in kept.places} >= {*places_of(sweep)}


def _kept(sweep: Sweep) -> KeptSpread | None:
    try:
        return read_model(sweep.dir / KNOWN_SPREAD, KeptSpread, "the report uses what is known now")
    except DamagedFile as error:
        _log.warning("%s", error)
        return None


def places_of(sweep: Sweep) -> list[Place]:
    """Pool, device and the sweep's metric of each trial that counts. Nothing where a value has no logarithm: see `on_a_scale_for`."""
    metric = sweep.plan.suite.report.metric
    values = numbers(row.summary.get(metric) for row in sweep.rows if row.outcome == "ok")
    if metric_of(metric).scale is Scale.LOG and any(value <= 0 for value in values):
        return []
    return list(dict.fromkeys((row.trial.pool, device_of(row), metric) for row in sweep.rows if counts(row)))


def _elsewhere(sweep: Sweep, past: PastSweeps, places: Sequence[Place]) -> dict[str, Replication]:
    metric = sweep.plan.suite.report.metric
    devices = {device for _, device, _ in places}
    rows: dict[str, list[TrialRow]] = {}
    for row in sweep.rows:
        if device_of(row) in devices:
            rows.setdefault(row.trial.cell, []).append(row)
    own = {cell: trials for cell, group in rows.items() if (trials := past_trials(group))}
    return replications(past, own, metric)
