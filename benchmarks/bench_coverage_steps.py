"""How often the interval of a trial's rate over its steps holds the long-run rate, and how often a drift of step times is named.

    python -m benchmarks.bench_coverage_steps --runs 2000 --markdown      the tables of docs/verdicts.md

The noise is simulated, and the same for the same seed.

Without --markdown it prints one JSON line for each noise and number of steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.coverage_noise_steps import FAMILIES, Family
from experiments.stats.steady_state import steady_state
from experiments.stats.step_interval import step_interval

STEPS = (20, 40, 100, 200, 500)
DRIFTS = (0.0, 0.05)  # relative change over the window
SAMPLES = 8.0  # of each step
SHOWN = 0.01  # a coverage is shown where at least this share of windows has an interval


@dataclass(frozen=True)
class Coverage:
    """Of one noise and number of steps. `coverage`: of the intervals given; `refused`: share of windows without one; `missing`: share of
    all windows with an interval that misses; `half_width`: median, as a share of the rate."""

    noise: str
    steps: int
    coverage: float | None
    refused: float
    missing: float
    half_width: float | None


def measure(noise: str, family: Family, steps: int, runs: int, seed: int) -> Coverage:
    """The coverage over `runs` windows."""
    times, mean = family(np.random.default_rng([seed, steps, *noise.encode()]), runs, steps)
    rate = SAMPLES / mean
    found = [step_interval(np.full(steps, SAMPLES), window) for window in times]
    given = [one.estimate for one in found if one.known]
    held = sum(estimate.low <= rate <= estimate.high for estimate in given)
    return Coverage(
        noise,
        steps,
        held / len(given) if given else None,
        1 - len(given) / runs,
        (len(given) - held) / runs,
        float(np.median([estimate.relative for estimate in given])) if given else None,
    )


@dataclass(frozen=True)
class Unsettled:
    """Of one noise and number of steps: by drift, the share of windows whose step times are said not to settle."""

    noise: str
    steps: int
    shares: dict[float, float]


def measure_drift(noise: str, family: Family, steps: int, runs: int, seed: int) -> Unsettled:
    """Over `runs` windows, the same for each drift."""
    times, _ = family(np.random.default_rng([seed, steps, *noise.encode()]), runs, steps)
    lines = {drift: np.linspace(1, 1 + drift, steps) for drift in DRIFTS}
    shares = {drift: sum(not steady_state(window * line).settled for window in times) / runs for drift, line in lines.items()}
    return Unsettled(noise, steps, shares)


def markdown(results: Iterable[Coverage | Unsettled]) -> str:
    """Noise by number of steps: coverage, median half-width, share refused; or the shares unsettled without and with drift."""
    by: dict[str, list[Coverage | Unsettled]] = {}
    for one in results:
        by.setdefault(one.noise, []).append(one)
    steps = [one.steps for one in next(iter(by.values()))]
    lines = [f"| noise | {' | '.join(f'{n} steps' for n in steps)} |", f"| :-- |{' --: |' * len(steps)}"]
    return "\n".join([*lines, *(f"| {noise} | {' | '.join(_cell(one) for one in row)} |" for noise, row in by.items())])


def _cell(one: Coverage | Unsettled) -> str:
    if isinstance(one, Unsettled):
        return " / ".join(f"{100 * share:.1f} %" for share in one.shares.values())
    if one.coverage is None or one.half_width is None or 1 - one.refused < SHOWN:
        return "too short to tell"
    refused = f", {100 * one.refused:.0f} % refused" if one.refused >= 0.005 else ""
    return f"{100 * one.coverage:.1f} %, ±{100 * one.half_width:.2f} %{refused}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="windows for each noise and number of steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true", help="the table of docs/verdicts.md instead of JSON lines")
    options = parser.parse_args()
    began = time.time()
    results = [measure(name, family, n, options.runs, options.seed) for name, family in FAMILIES.items() for n in STEPS]
    drifts = [measure_drift(name, family, n, options.runs, options.seed) for name, family in FAMILIES.items() for n in STEPS[1:]]
    if options.markdown:
        print(f"{markdown(results)}\n\n{markdown(drifts)}")
    for one in [] if options.markdown else [*results, *drifts]:
        figures = {name: value for name, value in asdict(one).items() if name not in ("noise", "steps")}
        print(json.dumps({"name": f"{one.noise}, {one.steps} steps", **figures}))
    print(f"{options.runs} windows for each noise and number of steps, {time.time() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
