"""How often creep is told of a cell that did not change, where its nights follow each other, and how often of one that did. Simulated.

    python -m benchmarks.bench_creep --markdown         the table of docs/nights.md

Nights are an autoregression of order 1 with the standard deviation `SD`, seen without a canary. *Told*: by the line alone at 1 %, however
small the change (`shown` with a minimum of 0); *suspected*: at 5 %. What crept lost LOSSES standard deviations of a night from the first
night to the last. The same for the line of least squares whose error an estimate of the correlation widens (`by_estimate`), which judged
before. Prints a JSON line for each correlation and number of nights.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.noise import ar1
from experiments.regression.creep import trend
from experiments.regression.decision import ALPHA

Array = NDArray[np.float64]
Rule = Callable[[Array], NDArray[np.bool_]]

NIGHTS = (10, 15, 20, 30, 60)
SHARED = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # correlation of neighbouring nights
SD = 0.01
LOSSES = (4.0, 8.0)  # in standard deviations of a night
_MOST = 0.9  # that `by_estimate` takes neighbours to share


def by_trend(nights: Array) -> NDArray[np.bool_]:
    return trend(nights).shown(0.0)


def by_estimate(nights: Array) -> NDArray[np.bool_]:
    """Least squares, the variance times (1 + r) / (1 - r) (Bartlett 1935) for the lag-1 correlation r of what is left, less its bias."""
    n = nights.shape[-1]
    time = np.arange(n) - (n - 1) / 2
    slope = nights @ time / (time @ time)
    rest = nights - nights.mean(-1, keepdims=True) - slope[:, None] * time
    shared = (rest[:, 1:] * rest[:, :-1]).sum(-1) / (rest**2).sum(-1)
    r = np.clip((shared + 2 / n) / (1 - 4 / n), 0, _MOST)
    error = np.sqrt((rest**2).sum(-1) / (n - 2) / (time @ time) * (1 + r) / (1 - r))
    return np.asarray(2 * special.stdtr(n - 2, slope / error) < ALPHA)


def suspected(nights: Array) -> NDArray[np.bool_]:
    return trend(nights).suspected(0.0)


RULES: dict[str, Rule] = {"told": by_trend, "suspected": suspected, "by an estimate": by_estimate}
HEAD = "told / suspected / told by an estimate, %"


def told(rule: Rule, shared: float, nights: int, runs: int, loss: float = 0.0) -> float:
    """The share of `runs` segments of which `rule` tells a creep. `loss`: from first to last night, in standard deviations of a night."""
    random = np.random.default_rng([nights, round(100 * shared)])
    values = SD * (ar1(random.normal(size=(runs, nights)), shared) - loss * np.linspace(0, 1, nights))
    return float(rule(values).mean())


def rates(rule: Rule, shared: float, loss: float, runs: int) -> dict[str, float]:
    """By number of nights."""
    return {str(nights): told(rule, shared, nights, runs, loss) for nights in NIGHTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000, help="segments of each correlation, loss and number of nights")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/nights.md instead of JSON lines")
    options = parser.parse_args()
    if options.markdown:
        print("\n".join([f"| {' | '.join([HEAD, *(f'{nights} nights' for nights in NIGHTS)])} |", f"| :-- |{' --: |' * len(NIGHTS)}"]))
    for shared, loss in [*((shared, 0.0) for shared in SHARED), *((0.0, loss) for loss in LOSSES)]:
        found = {name: rates(rule, shared, loss, options.runs) for name, rule in RULES.items()}
        name = f"AR(1) {shared:g}, {f'lost {loss:g} sd' if loss else 'no creep'}"
        if options.markdown:
            cells = [" / ".join(f"{100 * by_nights[str(nights)]:.1f}" for by_nights in found.values()) for nights in NIGHTS]
            print(f"| {' | '.join([name, *cells])} |", flush=True)
        else:
            print(json.dumps({"name": name, **found}), flush=True)


if __name__ == "__main__":
    main()
