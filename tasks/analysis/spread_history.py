"""What is known of the spread between trials, sweeps and hosts: learned from all past sweeps, and kept with the sweep that used it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from experiments.metric import Scale
from experiments.metrics import metric_of
from experiments.stats.nested import Groups, host_law, independent_df, sweep_law, trial_law
from experiments.stats.replication import Replication, replication_interval
from experiments.stats.spread import Spread
from experiments.stats.variances import VarianceLaw
from tasks.analysis.spread_store import PastSweeps, PastTrial

Cells = dict[tuple[str, str], dict[str, list[float]]]  # (cell, version) -> sweep or host -> values on the metric's scale


class Place(NamedTuple):
    """What one spread between trials, and one between sweeps, is learned from and holds for.

    Cells' variances are taken for draws from one law. That is plausible within a workload, and not of one that waits for its host together
    with one that its device bounds. `workload` None: of a known_spread.json of schema 1, which learned from all workloads together; of
    that the spread between hosts alone counts, which is about machines.
    """

    pool: str
    device: str | None  # its name
    workload: str | None
    metric: str


@dataclass(frozen=True)
class KnownSpread:
    """What is known at one place; None: unknown. On the metric's scale: of its logarithm, or in its unit.

    trial: how far one trial lies from its cell's mean. sweep: how far one sweep lies from the mean of sweeps, beyond what its trials
    explain. host: how far one host's mean lies from the mean of hosts, its sweeps' spread included, in whatever workload. `trials`,
    `sweeps` and `hosts` count what it was learned from: repeats of cells that have several in a sweep, and sweeps and hosts that share a
    cell with another.
    """

    trial: Spread | None = None
    sweep: Spread | None = None
    host: Spread | None = None
    trials: int = 0
    sweeps: int = 0
    hosts: int = 0


UNKNOWN = KnownSpread()


@dataclass(frozen=True)
class KnownSpreads:
    """What is known at several places."""

    places: Mapping[Place, KnownSpread]

    def at(self, place: Place) -> KnownSpread:
        """What is known there, which may be nothing."""
        held = self._holding(place)
        known = self.places.get(held or place, UNKNOWN)
        return known if held is None or held.workload is not None else replace(known, trial=None, sweep=None)

    def has(self, place: Place) -> bool:
        """Whether it says what is known there, be it nothing."""
        return self._holding(place) is not None

    def trial(self, pool: str, device: str | None, workload: str, metric: str) -> Spread | None:
        """The spread between trials: a `SpreadLookup`."""
        return self.at(Place(pool, device, workload, metric)).trial

    def _holding(self, place: Place) -> Place | None:
        """The place itself, or that of all workloads together."""
        return next((each for each in (place, place._replace(workload=None)) if each in self.places), None)


def learn(past: PastSweeps, place: Place) -> KnownSpread:
    """The components of variance at a place. Those between trials and between sweeps are of its pool and workload; that between hosts is
    of every pool with the device and of all workloads, since it is about machines and few workloads were measured on three hosts."""
    by_sweep, one_host_each, by_host = _by_sweep(past, place), _one_host_each(past, place), _by_host(past, place.device, place.metric)
    trials = trial_law(values for sweeps in by_sweep.values() for values in sweeps.values())
    sweeps = sweep_law(one_host_each, trials)
    hosts, _ = host_law_of(by_host)
    repeated = [values for groups in by_sweep.values() for values in groups.values() if len(values) > 1]
    return KnownSpread(
        _spread(trials),
        _spread(sweeps),
        _spread(hosts),
        sum(map(len, repeated)),
        len(_connected(one_host_each)),
        len(_connected(by_host.values())),
    )


def replications(past: PastSweeps, own: Mapping[str, Sequence[PastTrial]], metric: str) -> dict[str, Replication]:
    """For each cell of a sweep where another host's mean will land; cells of which that is not known are left out.

    `own`: the cells' names -> their trials in this sweep, all of one device and not among `past`. They count as a sweep like the others:
    what is predicted is a further host, not this one.
    """
    found: dict[str, Replication] = {}
    logarithmic = metric_of(metric).scale is Scale.LOG
    for device in {trial.device for trials in own.values() for trial in trials}:
        mine = {name: [trial for trial in trials if trial.device == device] for name, trials in own.items()}
        together = PastSweeps({**past.trials, "this sweep": [trial for trials in mine.values() for trial in trials]})
        by_host = _by_host(together, device, metric)
        law, df = host_law_of(by_host)
        for name, trials in mine.items():
            hosts = by_host.get((trials[0].cell, trials[0].version), {}) if trials else {}
            means = [float(np.mean(values)) for values in hosts.values()]
            if law is not None and len(means) > 1:
                range_ = replication_interval(
                    [math.exp(mean) for mean in means] if logarithmic else means, law, df, logarithmic=logarithmic
                )
                if range_ is not None:
                    found[name] = range_
    return found


def host_law_of(by_host: Cells) -> tuple[VarianceLaw | None, int]:
    """The law of the variance between hosts, and its independent degrees of freedom."""
    several = [hosts for hosts in by_host.values() if len(hosts) > 1]
    return host_law(several), independent_df(several)


def _by_sweep(past: PastSweeps, place: Place) -> Cells:
    """Cells by sweep and host: a sweep that went on on another host has repeats that differ by their hosts, which is not how far trials lie
    apart."""
    cells: Cells = {}
    for sweep, trial, value in _there(past, place):
        cells.setdefault((trial.cell, trial.version), {}).setdefault(f"{sweep} {trial.host or ''}", []).append(value)
    return cells


def _one_host_each(past: PastSweeps, place: Place) -> list[Groups]:
    """Cells by sweep, those of each host apart: what two sweeps on one host differ by, not what two hosts do."""
    cells: dict[tuple[str, str, str | None], dict[str, list[float]]] = {}
    for sweep, trial, value in _there(past, place):
        cells.setdefault((trial.cell, trial.version, trial.host), {}).setdefault(sweep, []).append(value)
    return list(cells.values())


def _by_host(past: PastSweeps, device: str | None, metric: str) -> Cells:
    """Cells by host, with the mean of each of a host's sweeps: of every pool and workload."""
    cells: Cells = {}
    for trials in past.trials.values():
        on_host: dict[tuple[tuple[str, str], str], list[float]] = {}
        for trial, value in _values(trials, device, metric):
            if trial.host is not None:
                on_host.setdefault(((trial.cell, trial.version), trial.host), []).append(value)
        for (cell, host), values in on_host.items():
            cells.setdefault(cell, {}).setdefault(host, []).append(float(np.mean(values)))
    return cells


def _there(past: PastSweeps, place: Place) -> Iterable[tuple[str, PastTrial, float]]:
    """(sweep, trial, its value) of the place's pool, device and workload; a trial that does not say its workload is of none."""
    for sweep, trials in past.trials.items():
        for trial, value in _values(trials, place.device, place.metric):
            if trial.pool == place.pool and trial.workload == place.workload:
                yield sweep, trial, value


def _values(trials: Iterable[PastTrial], device: str | None, metric: str) -> Iterable[tuple[PastTrial, float]]:
    """The device's trials with their value on the metric's scale; a value of 0 or less has no logarithm and is left out."""
    logarithmic = metric_of(metric).scale is Scale.LOG
    for trial in trials:
        value = trial.values.get(metric)
        if trial.device == device and value is not None and (value > 0 or not logarithmic):
            yield trial, math.log(value) if logarithmic else value


def _connected(cells: Iterable[Groups]) -> set[str]:
    return {name for cell in cells if len(cell) > 1 for name in cell}


def _spread(law: VarianceLaw | None) -> Spread | None:
    return law.spread() if law is not None else None
