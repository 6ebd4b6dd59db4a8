"""What is known of the spread between trials, sweeps and hosts: learned from all past sweeps, and kept with the sweep that used it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.metrics import Scale, metric_of
from experiments.stats.nested import Groups, host_law, independent_df, sweep_law, trial_law
from experiments.stats.replication import Replication, replication_interval
from experiments.stats.spread import Spread
from experiments.stats.variances import VarianceLaw
from tasks.analysis.spread_store import PastSweeps, PastTrial

Place = tuple[str, str | None, str]  # pool, the device's name, metric
Cells = dict[tuple[str, str], dict[str, list[float]]]  # (cell, version) -> sweep or host -> values on the metric's scale


@dataclass(frozen=True)
class KnownSpread:
    """What is known at one place; None: unknown. On the metric's scale: of its logarithm, or in its unit.

    trial: how far one trial lies from its cell's mean. sweep: how far one sweep lies from the mean of sweeps, beyond what its trials
    explain. host: how far one host's mean lies from the mean of hosts, its sweeps' spread included. `trials`, `sweeps` and `hosts` count
    what it was learned from: repeats of cells that have several in a sweep, and sweeps and hosts that share a cell with another.
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

    def at(self, pool: str, device: str | None, metric: str) -> KnownSpread:
        """What is known there, which may be nothing."""
        return self.places.get((pool, device, metric), UNKNOWN)

    def trial(self, pool: str, device: str | None, metric: str) -> Spread | None:
        """The spread between trials: a `SpreadLookup`."""
        return self.at(pool, device, metric).trial


def learn(past: PastSweeps, place: Place) -> KnownSpread:
    """The components of variance at a place, from all past trials there; the one between hosts from every pool with the device."""
    pool, device, metric = place
    by_sweep, by_host = _nested(past, device, metric, pool)
    trials = trial_law(values for sweeps in by_sweep.values() for values in sweeps.values())
    sweeps = sweep_law(_one_host_each(past, place), trials)
    hosts, _ = host_law_of(by_host)
    repeated = [values for groups in by_sweep.values() for values in groups.values() if len(values) > 1]
    return KnownSpread(
        _spread(trials),
        _spread(sweeps),
        _spread(hosts),
        sum(map(len, repeated)),
        len(_connected(_one_host_each(past, place))),
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
        _, by_host = _nested(together, device, metric)
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


def _nested(past: PastSweeps, device: str | None, metric: str, pool: str | None = None) -> tuple[Cells, Cells]:
    """(cells by sweep and host, of `pool` alone; cells by host, of every pool): values of trials, and means of a host's sweeps.

    A sweep that went on on another host has repeats that differ by their hosts, which is not how far trials lie apart.
    """
    by_sweep: Cells = {}
    by_host: Cells = {}
    for sweep, trials in past.trials.items():
        on_host: dict[tuple[tuple[str, str], str], list[float]] = {}
        for trial, value in _values(trials, device, metric):
            cell = (trial.cell, trial.version)
            if pool in (None, trial.pool):
                by_sweep.setdefault(cell, {}).setdefault(f"{sweep} {trial.host or ''}", []).append(value)
            if trial.host is not None:
                on_host.setdefault((cell, trial.host), []).append(value)
        for (cell, host), values in on_host.items():
            by_host.setdefault(cell, {}).setdefault(host, []).append(float(np.mean(values)))
    return by_sweep, by_host


def _one_host_each(past: PastSweeps, place: Place) -> list[Groups]:
    """Cells by sweep, those of each host apart: what two sweeps on one host differ by, not what two hosts do."""
    pool, device, metric = place
    cells: dict[tuple[str, str, str | None], dict[str, list[float]]] = {}
    for sweep, trials in past.trials.items():
        for trial, value in _values(trials, device, metric):
            if trial.pool == pool:
                cells.setdefault((trial.cell, trial.version, trial.host), {}).setdefault(sweep, []).append(value)
    return list(cells.values())


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
