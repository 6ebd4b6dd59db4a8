"""How often verdicts are wrong that were looked for after every round, and how many trials they take: simulated sweeps, as bench_coverage.

    make bench-coverage           the tables of docs/verdicts.md
    python -m benchmarks.bench_sequential --tables 40 --markdown

A sweep of 2 to 20 cells has time for five rounds of all of them. From the third on the comparisons are looked at; what is decided takes
part in no more rounds, and the rest has its time, up to twenty rounds. Beside it five repeats of each cell, judged once. Looks are planned
and made by the code that runs sweeps and makes reports; only the choice of the next round's cells is written again. In a quarter of the
sweeps all cells are equal; in the others the last one is faster by 5, 3 or just over 2 %, the smallest effect: then a *same* is false.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_coverage import CELLS, DECIDED, RATE, SUITE, Counts, trials_of
from benchmarks.coverage_noise import SCENARIOS, Array
from experiments.stats.estimate import Estimate
from experiments.stats.interim_levels import next_look
from experiments.stats.interim_looks import Look
from experiments.stats.verdict import Verdict
from experiments.trial import Trial, TrialResult
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.look_result import LookResult
from tasks.analysis.looks import next_results
from tasks.analysis.trial_row import TrialRow

ROUNDS, LEAST, MOST = 5, 3, 20
EFFECTS = (0.0, 0.05, 0.03, 0.0205)
Trials = list[list[tuple[Trial, TrialResult]]]


def rows_of(trials: Trials, logs: Array, rounds: dict[int, int]) -> list[TrialRow]:
    """The trials of each cell's first so many rounds."""
    last = max(rounds.values())
    return [
        TrialRow(*trials[cell][at], {"throughput": RATE * math.exp(logs[cell, at])})
        for at in range(last)
        for cell in rounds
        if at < rounds[cell]
    ]


def decided(trials: Trials, logs: Array) -> tuple[dict[int, tuple[Verdict, Estimate]], int]:
    """What a sweep that is looked at says of each cell but the first, and how many trials it took."""
    cells = logs.shape[0]
    budget = left = ROUNDS * cells
    rounds, looks, seen = dict.fromkeys(range(cells), 0), list[Look](), dict[str, LookResult]()
    running, at = list(range(cells)), 0
    while at < MOST and len(running) > 1 and left >= len(running):
        at, left = at + 1, left - len(running)
        rounds |= dict.fromkeys(running, at)
        if at < LEAST:
            continue
        looks.append(next_look(looks, at, min(MOST, at + left // len(running))))
        seen |= next_results(rows_of(trials, logs, rounds), SUITE, looks, seen)
        running = [0, *(cell for cell in range(1, cells) if not seen[f"{cell}"].decided)]
    return {cell: (seen[f"{cell}"].found.verdict, seen[f"{cell}"].found.ratio) for cell in range(1, cells)}, budget - left


def once(trials: Trials, logs: Array) -> tuple[dict[int, tuple[Verdict, Estimate]], int]:
    """The same of five repeats of each cell, judged once."""
    made = make_cells(rows_of(trials, logs, dict.fromkeys(range(logs.shape[0]), ROUNDS)), SUITE)
    found = {int(cell.trial.cell): (cell.verdict, cell.speedup) for cell in made if cell.verdict and cell.speedup}
    return found, ROUNDS * logs.shape[0]


def measure(noise: int, cells: int, tables: int) -> dict[str, Counts]:
    """Counts over `tables` sweeps for each effect, by rule. The same noise and cells give the same sweeps."""
    random, trials = np.random.default_rng([noise, cells]), trials_of(cells, MOST)
    counts = {"looked at": Counts(), "five repeats": Counts()}
    for number in range(tables * len(EFFECTS)):
        effect = EFFECTS[number % len(EFFECTS)]
        logs = SCENARIOS[noise].make(random, cells, MOST)
        logs[-1] += math.log1p(effect)
        for name, rule in (("looked at", decided), ("five repeats", once)):
            count(counts[name], *rule(trials, logs), cells, effect)
    return counts


def count(counts: Counts, found: dict[int, tuple[Verdict, Estimate]], took: int, cells: int, effect: float) -> None:
    """Count what was said of a sweep whose last cell is faster by `effect`."""
    equal = {cell: said for cell, said in found.items() if cell < cells - 1 or not effect}
    wrong = [verdict in DECIDED for verdict, _ in equal.values()]
    counts.add("false, cell", sum(wrong), len(wrong))
    if wrong:
        counts.add("false, table", any(wrong))
    covers = [ratio.low <= (1 + effect if cell == cells - 1 else 1.0) <= ratio.high for cell, (_, ratio) in found.items()]
    counts.add("interval holds", sum(covers), len(covers))
    counts.add("undecided", sum(verdict is Verdict.UNDECIDED for verdict, _ in found.values()), len(found))
    counts.add("trials", took, ROUNDS * cells)
    last = found[cells - 1][0]
    if effect:
        counts.add(f"finds {effect:.1%}", last is Verdict.FASTER)
    if effect == EFFECTS[-1]:
        counts.add("false same", last is Verdict.SAME)


SHOWN = {  # what was counted: its column
    "false, cell": "false: cell",
    "false, table": "table",
    "false same": "false *same*",
    "interval holds": "interval holds",
    "finds 5.0%": "finds 5 %",
    "finds 3.0%": "finds 3 %",
    "undecided": "undecided",
    "trials": "trials run",
}


def markdown(title: str, found: dict[str, dict[str, Counts]]) -> str:
    """A row for each name; each place has the figures of sweeps that are looked at and of five repeats."""
    header = [f"{title} (looked at, five repeats)", *SHOWN.values()]
    lines = [f"| {' | '.join(header)} |", f"| :-- |{' --: |' * (len(header) - 1)}"]
    for name, rules in found.items():
        places = [" · ".join(f"{100 * counts.share(key):.1f}" for counts in rules.values()) for key in SHOWN]
        lines.append(f"| {name} | {' | '.join(places)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=40, help="sweeps for each noise, effect and number of cells")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/verdicts.md instead of JSON lines")
    parser.add_argument("--noise", action="append", choices=[scenario.name for scenario in SCENARIOS], help="only this; may be repeated")
    options = parser.parse_args()
    began = time.process_time()
    by_noise: dict[str, dict[str, Counts]] = defaultdict(lambda: defaultdict(Counts))
    by_cells: dict[str, dict[str, Counts]] = defaultdict(lambda: defaultdict(Counts))
    for number, scenario in enumerate(SCENARIOS):
        if options.noise and scenario.name not in options.noise:
            continue
        for cells in CELLS:
            for rule, counts in measure(number, cells, options.tables).items():
                by_noise[scenario.name][rule].merge(counts)
                by_cells[f"{cells} cells"][rule].merge(counts)
    if options.markdown:
        print("\n\n".join([markdown("noise", by_noise), markdown("cells", by_cells)]))
    else:
        for name, rules in {**by_noise, **by_cells}.items():
            for rule, counts in rules.items():
                print(json.dumps({"name": f"{name}, {rule}", **{key: counts.share(key) for key in SHOWN}}))
    print(f"{options.tables} sweeps a place, {time.process_time() - began:.0f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
