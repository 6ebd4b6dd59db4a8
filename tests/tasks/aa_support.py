"""Pairs of an A/A sweep from made-up noise, without files. Nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.spec.schema import Suite
from experiments.stats.estimate import Estimate, estimate_from_log
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict
from tasks.analysis.aa import Comparison
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.store import AaSettings
from tests.tasks.cell_support import row, settings
from tests.tasks.fake_sweep import as_suite
from tests.tasks.plan_support import make_plan

DEVICE = "Made-up GPU"
SETTINGS = settings(columns="twin", baseline={"twin": "A"})


def aa_suite() -> Suite:
    """The suite of an A/A sweep: twin B is compared with twin A."""
    return as_suite(SETTINGS)


def twin_row(twin: str, number: int, log: float = 0.0, *, pool: str = "gpu", **more: Any) -> TrialRow:
    """One trial of pair `number`; its rate is 100 times exp(`log`)."""
    known = {"environment": {"device_name": DEVICE, "host": "box"}, "within": 0.001, "summary": {"settled": True, "state_coverage": 1.0}}
    return row({"pool": pool, "twin": twin}, 100 * math.exp(log), repeat=number, **{**known, **more})


def pair_rows(a: Sequence[float], b: Sequence[float], **more: Any) -> list[TrialRow]:
    """Both trials of each pair, from the logarithms of their rates, in turns."""
    rows = []
    for number, logs in enumerate(zip(a, b, strict=True), 1):
        both = [twin_row(twin, number, log, **more) for twin, log in zip("AB", logs, strict=True)]
        rows += both if number % 2 else both[::-1]
    return rows


def noise(pairs: int, sd: float = 0.02, seed: int = 1, outliers: float = 0.0) -> tuple[list[float], list[float]]:
    """Logarithms of the rates of both twins, normal; `outliers`: the share of trials whose noise is ten times as large."""
    random = np.random.default_rng(seed)
    size = sd * np.where(random.random((2, pairs)) < outliers, 10.0, 1.0)
    a, b = random.normal(size=(2, pairs)) * size
    return a.tolist(), b.tolist()


def aa_sweep(rows: Sequence[TrialRow], folder: Path = Path("made-up"), **plan: Any) -> Sweep:
    """The A/A sweep of these rows."""
    sweep_id = folder.name
    whole = {"suite": aa_suite(), "sweep_id": sweep_id, "aa": AaSettings(pairs=200), "git": {"commit": "c0ffee", "dirty": False}}
    return Sweep(folder, make_plan([one.trial for one in rows], **{**whole, **plan}), rows)


def ended(one: TrialRow, started_at: float, seconds: float = 10.0, **result: Any) -> TrialRow:
    """The row with other times, and other fields of its result."""
    assert one.result is not None
    return replace(one, result=one.result.model_copy(update={"started_at": started_at, "finished_at": started_at + seconds, **result}))


def known_t(factor: float = 1.0) -> Any:
    """A comparison whose interval is Student's with the known spread, else that of the trials; `factor`: how much wider it is made."""

    def compare(rows: Sequence[TrialRow], suite: Suite, known: Spread | None) -> Comparison | None:
        logs = {twin: [math.log(one.summary["throughput"] or 0) for one in rows if one.trial.axes["twin"] == twin] for twin in "AB"}  # type: ignore[arg-type]
        n = len(logs["A"])
        spread = known or Spread(math.sqrt((np.var(logs["A"], ddof=1) + np.var(logs["B"], ddof=1)) / 2), 2 * (n - 1))
        ratio = float(np.mean(logs["B"]) - np.mean(logs["A"]))
        found: Estimate = estimate_from_log(ratio, factor * spread.sd * math.sqrt(2 / n), spread.df, n, 0.95)
        away = Verdict.FASTER if ratio > 0 else Verdict.SLOWER
        return found, Verdict.UNDECIDED if found.low <= 1 <= found.high else away

    return compare
