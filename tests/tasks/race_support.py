"""Races from made-up rates, without files: rows round by round, and the plan that would have grown so. Nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tasks.analysis.race import Race, race_of
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.race_settings import RaceSettings
from tasks.sweep.store import Plan
from tests.tasks.cell_support import row, settings
from tests.tasks.fake_sweep import as_suite
from tests.tasks.plan_support import make_plan

SUITE = settings(baseline={"dataloader_workers": 0})


def race_settings(**changed: Any) -> RaceSettings:
    whole = {"metric": "throughput", "direction": "maximise", "budget_s": 600.0, "minimum": 0.02}
    return RaceSettings.model_validate({**whole, **changed})


def race_row(racer: int, number: int, rate: float = 100.0, **more: Any) -> TrialRow:
    """The trial of a racer, the one with so many loader processes, in a round."""
    return row({"pool": "cpu", "dataloader_workers": racer}, rate, repeat=number, **more)


def race_rows(rates: Sequence[float], rounds: Sequence[Sequence[int]], sd: float = 0.005, seed: int = 1) -> list[TrialRow]:
    """`rounds`: who runs in each; racer i at `rates[i]`, trials `sd` apart."""
    noise = sd * np.random.default_rng(seed).normal(size=(len(rates), len(rounds)))
    return [
        race_row(racer, number, rates[racer] * math.exp(noise[racer, number - 1]))
        for number, racers in enumerate(rounds, 1)
        for racer in racers
    ]


def changed(rows: Sequence[TrialRow], racer: int, number: int, **fields: Any) -> list[TrialRow]:
    """The rows, one of them made anew by `race_row` with these fields."""
    return [race_row(racer, number, **fields) if _is(one, racer, number) else one for one in rows]


def with_metric(rows: Sequence[TrialRow], values: Mapping[int, float | Sequence[float]], name: str = "peak_memory_bytes") -> list[TrialRow]:
    """The rows with another metric: of each racer one value, or one for each round."""
    found = []
    for one in rows:
        value = values[int(str(one.trial.axes["dataloader_workers"]))]
        at = value if isinstance(value, int | float) else value[one.trial.repeat - 1]
        found.append(replace(one, summary={**one.summary, name: at}))
    return found


def race_plan(rows: Sequence[TrialRow], **fields: Any) -> Plan:
    return make_plan([one.trial for one in rows], suite=as_suite(SUITE), race=race_settings(**fields), command="sweep tune s --budget 10m")


def made_race(rows: Sequence[TrialRow], **fields: Any) -> Race:
    return race_of(race_plan(rows, **fields), rows)


def race_sweep(rows: Sequence[TrialRow], folder: Path = Path("made-up"), **fields: Any) -> Sweep:
    return Sweep(folder, race_plan(rows, **fields), rows)


def _is(one: TrialRow, racer: int, number: int) -> bool:
    return one.trial.axes["dataloader_workers"] == racer and one.trial.repeat == number
