"""How often what is known of the spread from past sweeps is wrong: a single trial's interval, and comparisons of two sweeps, simulated.

    make bench-coverage           the tables of docs/verdicts.md
    python -m benchmarks.bench_coverage_history --runs 1000 --markdown

Each run draws a history of past sweeps and learns from it with the code that reports use. Then a new trial, or two new sweeps of cells that
did not change, are judged by it. All noise is normal and independent; what differs between cells is said in the table. Prints one JSON
line for each row.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.stats.between_sweeps import both_sides, with_spread
from experiments.stats.estimate import Estimate, t_value
from experiments.stats.repeats import ratio_interval
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict, benjamini_hochberg, verdict
from tasks.analysis.spread_history import KnownSpread, Place, learn
from tasks.analysis.spread_store import PastSweeps, PastTrial

Array = NDArray[np.float64]
PAST_CELLS = (5, 20, 100)
PAST_SWEEPS = (4, 8, 20)
CELLS, REPEATS = 5, 3  # of a compared sweep; history has as many
MINIMUM = 0.02
PLACE = Place("pool", "device", "workload", "throughput")
SPREADS: dict[str, Callable[[np.random.Generator, int], Array]] = {  # a cell's standard deviation between trials
    "all cells 1 %": lambda rng, n: np.full(n, 0.01),
    "chi-squared, d0 = 4": lambda rng, n: 0.01 * np.sqrt(4 / rng.chisquare(4, n)),
    "log-normal, factor 2": lambda rng, n: 0.01 * np.exp(rng.normal(0, math.log(2), n)),
    "one in twelve 5 %, others 0.5 %": lambda rng, n: np.where(rng.random(n) < 1 / 12, 0.05, 0.005),
    "one in six 5 %, others 0.5 %": lambda rng, n: np.where(rng.random(n) < 1 / 6, 0.05, 0.005),
}
DAYS = (0.0, 0.005, 0.015, 0.03)  # standard deviation between sweeps


def history(logs: Array) -> PastSweeps:
    """Past sweeps from logarithms of throughputs (sweeps, cells, repeats)."""
    return PastSweeps(
        {
            f"sweep {number}": [
                PastTrial(
                    cell=f"cell {cell}", version="1", workload="workload", pool="pool", device="device", host="host", started_at=0.0,
                    values={"throughput": math.exp(value)},
                )
                for cell, repeats in enumerate(sweep)
                for value in repeats
            ]
            for number, sweep in enumerate(logs)
        }
    )  # fmt: skip


def single_trials(kind: str, cells: int, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """How often a new cell's single trial lies within its interval of the cell's mean: exactly, for 200 new cells of each history."""
    spreads, covers, widths = SPREADS[kind], [], []
    for _ in range(runs):
        sds = spreads(rng, cells)
        known = learn(history(rng.normal(0, sds[None, :, None], (1, cells, REPEATS))), PLACE).trial
        assert known is not None
        half = t_value(0.95, known.df) * known.sd
        covers.append(float(special.erf(half / spreads(rng, 200) / math.sqrt(2)).mean()))
        widths.append(half)
    return {"covers": float(np.mean(covers)), "half-width": float(np.median(widths))}


def two_sweeps(day: float, sweeps: int, *, common: bool, unequal: bool, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """Two new sweeps of equal cells: how often a ratio's interval holds 1, cells are falsely decided, and 5 % is found."""
    counts = dict.fromkeys(("covers", "false", "false without", "finds 5 %"), 0.0)
    for _ in range(runs):
        sds = 0.005 * (np.sqrt(4 / rng.chisquare(4, CELLS)) if unequal else np.ones(CELLS))
        past = measured(rng, sds, day, sweeps, common=common)
        known = learn(history(past), PLACE)
        a, b = measured(rng, sds, day, 2, common=common)
        for name, found in (("", judged(a, b, known)), (" without", judged(a, b, None))):
            counts["false" + name] += float(np.mean([word in (Verdict.FASTER, Verdict.SLOWER) for _, word in found]))
            if not name:
                counts["covers"] += float(np.mean([ratio.low <= 1 <= ratio.high for ratio, _ in found]))
        slower = b.copy()
        slower[0] += math.log(0.95)
        counts["finds 5 %"] += judged(a, slower, known)[0][1] is Verdict.SLOWER
    return {name: count / runs for name, count in counts.items()}


def measured(rng: np.random.Generator, sds: Array, day: float, sweeps: int, *, common: bool) -> Array:
    """Logarithms (sweeps, cells, repeats). `common`: a day is the same for all cells of a sweep; else each cell has its own."""
    days = rng.normal(0, day, (sweeps, 1 if common else CELLS, 1))
    return np.asarray(days + rng.normal(0, sds[None, :, None], (sweeps, CELLS, REPEATS)))


def judged(a: Array, b: Array, known: KnownSpread | None) -> list[tuple[Estimate, Verdict]]:
    """Every cell of B against A as `sweep compare` does it; with None as if sweeps had no spread."""
    between: list[Spread] = [both_sides(known.sweep)] if known is not None and known.sweep is not None else []
    ratios = [with_spread(ratio_interval(*(estimates(side) for side in sides)), between) for sides in zip(b, a, strict=True)]
    q_values = benjamini_hochberg([ratio.p_value for ratio in ratios])
    return [(ratio, verdict(ratio, minimum=MINIMUM, q_value=q)) for ratio, q in zip(ratios, q_values, strict=True)]


def estimates(logs: Array) -> list[Estimate]:
    """Trials whose steps say nothing of their own error."""
    return [Estimate(math.exp(value), 0.0, math.inf, math.inf, 1) for value in logs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="histories of each row")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/verdicts.md instead of JSON lines")
    options = parser.parse_args()
    began, rng = time.time(), np.random.default_rng(0)
    single = {(kind, cells): single_trials(kind, cells, options.runs, rng) for kind in SPREADS for cells in PAST_CELLS}
    pairs = {
        (day, kind, sweeps): two_sweeps(day, sweeps, common=common, unequal=unequal, runs=options.runs, rng=rng)
        for day in DAYS
        for kind, common, unequal in (("common day", True, False), ("own day", False, False), ("common, unequal cells", True, True))
        for sweeps in PAST_SWEEPS
    }
    if options.markdown:
        print(f"{single_markdown(single)}\n\n{pairs_markdown(pairs)}")
    else:
        for (kind, cells), row in single.items():
            print(json.dumps({"name": f"single trial, {kind}", "past_cells": cells, **row}))
        for (day, kind, sweeps), row in pairs.items():
            print(json.dumps({"name": f"two sweeps, {kind}", "day_sd": day, "past_sweeps": sweeps, **row}))
    print(f"{time.time() - began:.0f} s", file=sys.stderr)


def single_markdown(rows: dict[tuple[str, int], dict[str, float]]) -> str:
    head = " | ".join(f"{cells} past cells" for cells in PAST_CELLS)
    lines = [f"| a single trial's interval holds its cell's mean | {head} |", f"| :-- |{' --: |' * len(PAST_CELLS)}"]
    for kind in SPREADS:
        shown = (rows[kind, cells] for cells in PAST_CELLS)
        places = (f"{100 * row['covers']:.1f} %, ±{100 * row['half-width']:.1f} %" for row in shown)
        lines.append(f"| {kind} | {' | '.join(places)} |")
    return "\n".join(lines)


def pairs_markdown(rows: dict[tuple[float, str, int], dict[str, float]]) -> str:
    header = ("two sweeps", "past sweeps", "ratio holds", "false verdicts", "without the spread between sweeps", "finds 5 %")
    lines = [f"| {' | '.join(header)} |", "| :-- | --: | --: | --: | --: | --: |"]
    for (day, kind, sweeps), row in rows.items():
        shown = (f"{100 * row[name]:.1f} %" for name in ("covers", "false", "false without", "finds 5 %"))
        lines.append(f"| days {100 * day:g} %, {kind} | {sweeps} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
