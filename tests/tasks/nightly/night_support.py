"""Nights with made-up values: a definition, a night's cells, and histories as MLflow would give them. Nothing here is a measurement."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.regression.definition import NightFile
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.history import History, Measured
from tasks.nightly.store import CellVerdict, Night, NightCell, Role
from tasks.nightly.verdicts import NightVerdicts

DATES = [f"2026-10-{day:02d}" for day in range(1, 21)]
TONIGHT = "2026-10-21"
DEFINITION = NightFile.model_validate({"nightly": "made-up", "cells": [{"suite": "synthetic"}], "least_nights": 5})
QUIET = 1e-4  # noise, so that little else shows


def cell(
    name: str,
    role: Role = "history",
    metrics: tuple[str, ...] = ("throughput",),
    *,
    pool: str = "cpu",
    minimum_effect: Mapping[str, float] | None = None,
) -> NightCell:
    return NightCell(
        cell=f"id-{name}",
        name=name,
        suite="synthetic",
        pool=pool,
        role=role,
        value=1.0,
        metrics=list(metrics),
        minimum_effect=dict(minimum_effect or {}),
    )


CELLS = [cell("canary", "canary"), cell("one"), cell("two"), cell("canary", "twin"), cell("canary", "injected")]


def night(**more: object) -> Night:
    values = {
        "name": "made-up",
        "date": TONIGHT,
        "sweep_id": "nightly-made-up-20261021-020000-0000",
        "opened_at": 1.8e9,
        "budget_s": 7200.0,
    }
    return Night.model_validate({**values, "cells": CELLS, **more})


def trials(
    name: str,
    dates: list[str],
    *,
    role: str = "history",
    rate: float = 100.0,
    seed: int = 0,
    repeats: int = 3,
    noise: float = 0.005,
    host: str = "node-1",
    facts: Mapping[str, str] | None = None,
    node: Mapping[str, float] | None = None,
    first: int = 1,
    memory: float = 2.0**30,
) -> list[Measured]:
    """`node`: date -> factor that everything on that date shares. `first`: number of the first round."""
    random = np.random.default_rng([seed, *name.encode()])
    return [
        Measured(
            cell=f"id-{name}",
            role=role,
            date=date,
            round=repeat,
            host=host,
            values={
                "throughput": rate * (node or {}).get(date, 1.0) * float(np.exp(noise * random.normal())),
                "peak_memory_bytes": memory,
            },
            facts={"torch": "2.13.0", "git_commit": "a" * 40, **(facts or {})},
        )
        for date in dates
        for repeat in range(first, first + repeats)
    ]


def past(dates: list[str] = DATES, node: Mapping[str, float] | None = None) -> History:
    history = History()
    for name in ("one", "two"):
        history.add(trials(name, dates, node=node))
    for role in ("canary", "twin"):
        history.add(trials("canary", dates, role=role, seed=len(role), node=node))
    return history


def now(rates: Mapping[str, float], *, canary: float = 100.0, facts: Mapping[str, str] | None = None) -> History:
    history = History()
    for name, rate in rates.items():
        history.add(trials(name, [TONIGHT], rate=rate, seed=9, facts=facts))
    for role, factor in (("canary", 1.0), ("twin", 1.0), ("injected", 1 / 1.08)):
        history.add(trials("canary", [TONIGHT], role=role, rate=canary * factor, seed=len(role) + 9))
    return history


def verdicts_of(  # type: ignore[no-untyped-def]
    tonight: History,
    before: History | None = None,
    nights: list[Night] | None = None,
    changes: list[Change] | None = None,
    definition: NightFile = DEFINITION,
):
    """(verdicts by name and role, those of the nodes, the cells that are open) of the night's measurements."""
    verdicts = NightVerdicts(definition, night(), before or past(), nights or [], changes or [])
    found, nodes = verdicts.judgements(tonight)
    return {(item.name, item.role): item for item in found}, nodes, verdicts.undecided(found)


def said(date: str, verdict: Verdict, name: str = "one") -> Night:
    item = CellVerdict(
        cell=f"id-{name}", name=name, role="history", metric="throughput", verdict=verdict, word="w", minimum=0.03, repeats=3
    )
    return night(date=date, judgements=[item])
