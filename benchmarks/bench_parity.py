"""How often the loss-parity test strikes a candidate that differs in nothing, and how often it finds one that diverges. Simulated curves.

    python -m benchmarks.bench_parity --markdown

Each run is one candidate with 1, 3 or 5 seeds against a reference with 3 or 5. The candidate's loss is higher by a share of it, or not.
At the length it recommends: a run of 200 steps without divergence is judged first; where it recommends a length, another run of that
length diverges by 1 %. Prints one JSON line for each noise and number of seeds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.loss_curves import FAMILIES, Family, draw
from experiments.stats.loss_parity import TARGET, Parity, ParityStatus, loss_parity

DESIGNS = ((1, 3), (3, 3), (5, 5))  # seeds of the candidate, of the reference
LENGTHS = (15, 30, 100, 200, 1000)
EFFECTS = (0.005, 0.01, 0.02, 0.05)
PILOT = 200


@dataclass
class Rates:
    """Of one noise and design. By length: `false` shares of equal candidates struck, `proven` of them proven, `wrong` of candidates that
    diverge by 1 % proven. `found`: by length and divergence, shares struck. `smallest`: by length, the median that is said.

    `silent`: share of equal candidates of 200 steps for which no length is recommended. `recommended`: the median of the others;
    `at_recommended`: share of those that diverge by 1 % and are struck at that length; `told`: of these, those that say that 1 % would be.
    """

    noise: str
    pairs: int
    seeds: int
    false: dict[int, float]
    proven: dict[int, float]
    wrong: dict[int, float]
    found: dict[int, dict[float, float]]
    smallest: dict[int, float]
    silent: float
    recommended: float | None
    at_recommended: float | None
    told: float | None


def judge(family: Family, design: tuple[int, int], steps: int, divergence: float, runs: int, number: int = 0) -> list[Parity]:
    """The same numbers give the same runs."""
    random = np.random.default_rng([number, steps, *design, round(divergence * 1e6), FAMILIES.index(family)])
    pairs, seeds = design
    return [loss_parity(*draw(family, random, steps, pairs=pairs, seeds=seeds, divergence=divergence)) for _ in range(runs)]


def share(found: list[Parity], status: ParityStatus) -> float:
    return sum(parity.status is status for parity in found) / len(found)


def measure(family: Family, design: tuple[int, int], runs: int) -> Rates:
    """`runs` equal candidates at each length, a quarter as many of each divergence."""
    rates = Rates(family.name, *design, {}, {}, {}, {}, {}, 0.0, None, None, None)
    for steps in LENGTHS:
        equal = judge(family, design, steps, 0.0, runs)
        rates.false[steps] = share(equal, ParityStatus.STRUCK)
        rates.proven[steps] = share(equal, ParityStatus.PROVEN)
        rates.smallest[steps] = float(np.median([parity.smallest or np.inf for parity in equal]))
        rates.found[steps] = {}
        for effect in EFFECTS:
            diverges = judge(family, design, steps, effect, max(1, runs // 4))
            rates.found[steps][effect] = share(diverges, ParityStatus.STRUCK)
            if effect == TARGET:
                rates.wrong[steps] = share(diverges, ParityStatus.PROVEN)
    lengths = [parity.recommended for parity in judge(family, design, PILOT, 0.0, max(1, runs // 4), 1)]
    known = [length for length in lengths if length is not None]
    rates.silent = 1 - len(known) / len(lengths)
    if known:
        again = [judge(family, design, min(length, 20_000), TARGET, 1, 2 + place)[0] for place, length in enumerate(known)]
        told = [parity for parity in again if (parity.smallest or np.inf) <= TARGET]
        rates.recommended = float(np.median(known))
        rates.at_recommended = share(again, ParityStatus.STRUCK)
        rates.told = share(told, ParityStatus.STRUCK) if told else None
    return rates


def markdown(rates: list[Rates]) -> str:
    lines = [
        "| noise | seeds | equal, struck (worst length) | 1 % found at 100, 200, 1000 | 2 % | equal, proven | 1 % proven"
        " | no length recommended | recommended | 1 % found there | where it says so |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rate in rates:
        seeds = f"{rate.pairs} of {rate.seeds}"
        false = f"{np.mean(list(rate.false.values())):.1%} ({max(rate.false.values()):.1%})"
        one, two = (", ".join(f"{rate.found[steps][effect]:.0%}" for steps in LENGTHS[2:]) for effect in (0.01, 0.02))
        proven = ", ".join(f"{rate.proven[steps]:.0%}" for steps in LENGTHS[2:])
        length = "–" if rate.recommended is None else f"{rate.recommended:.0f}"
        there, told = ("–" if value is None else f"{value:.0%}" for value in (rate.at_recommended, rate.told))
        silent, wrong = f"{rate.silent:.0%}", f"{max(rate.wrong.values()):.0%}"
        lines.append(
            "| "
            + " | ".join([rate.noise, seeds, false, one, two, proven, wrong, silent, length, there, told])
            .replace("%", " %")
            .replace("  %", " %")
            + " |"
        )
    return re.sub(r" *%", " %", "\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=400, help="equal candidates of each noise, design and length")
    parser.add_argument("--markdown", action="store_true", help="a table instead of JSON lines")
    arguments = parser.parse_args()
    began, rates = time.perf_counter(), []
    for design in DESIGNS:
        for family in FAMILIES:
            rates.append(measure(family, design, arguments.runs))
            if not arguments.markdown:
                print(json.dumps(asdict(rates[-1])), flush=True)
    if arguments.markdown:
        print(markdown(rates))
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
