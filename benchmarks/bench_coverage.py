"""How often intervals and verdicts over repeats are wrong: simulated sweeps of cells whose true rates are known.

    make bench-coverage           the tables of docs/verdicts.md
    python -m benchmarks.bench_coverage --tables 1000 --markdown

Each table is a sweep of 2 to 20 cells, made into cells, compared and judged by the code that makes reports. In most all cells are equal:
then an interval of a ratio has to hold 1, and every faster or slower is false. In the others the last cell is faster by 3 or 5 %. The
noise is that of benchmarks/coverage_noise.py. Prints one JSON line for each noise and number of repeats.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.coverage_noise import SCENARIOS, Array, Scenario, by_rounds, by_rounds_of_half, places
from benchmarks.pooled_layout import ratio_covers
from benchmarks.quiet_pair import quiet_pairs
from experiments.spec.schema import ReportSettings, Suite
from experiments.stats.estimate import Estimate
from experiments.stats.repeats import repeats_interval
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome, Trial, TrialResult
from tasks.analysis.cell import Cell
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.judge_cells import judge_best
from tasks.analysis.trial_row import TrialRow

CELLS = (2, 3, 5, 12, 20)
REPEATS = (2, 3, 5)
EFFECTS = (0.05, 0.03)
POOLED = ("equal", "baseline 5 %, others 1 %")
RATE = 100.0  # samples/s of every cell
DECIDED = (Verdict.FASTER, Verdict.SLOWER)
NAME = "number"
SUITE = Suite(
    suite="simulated", description="Simulated.", workload="synthetic", profile="full", file="", pools={"cpu": "cpu"}, fixed={},
    axes={NAME: [0, 1]}, linked=[], conditions=[], exclude=[], include=[], sets={}, only={}, parity_reference=False, repeats=1, limit=2000,
    baseline={NAME: 0}, report=ReportSettings(rows=["pool"], columns=NAME), retries=0, hang_timeout_s=600.0,
)  # fmt: skip


@dataclass
class Counts:
    """What was counted; each rate is a share of `of` its kind. Half-widths are medians of logarithms."""

    hits: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    of: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    half_widths: list[float] = field(default_factory=list)

    def add(self, name: str, hits: float, of: int = 1) -> None:
        self.hits[name] += hits
        self.of[name] += of

    def share(self, name: str) -> float:
        return self.hits[name] / self.of[name] if self.of[name] else math.nan

    def merge(self, other: Counts) -> None:
        for name, of in other.of.items():
            self.add(name, other.hits[name], of)
        self.half_widths += other.half_widths


def trials_of(cells: int, rounds: int) -> list[list[tuple[Trial, TrialResult]]]:
    """By cell and round, what a sweep that runs as planned has on disk."""
    when = places(cells, rounds)
    made = []
    for cell in range(cells):
        made.append([])
        for repeat in range(rounds):
            trial = Trial(
                key=f"{cell:08x}{repeat:08x}", key_parts={}, sweep_id="simulated", suite="simulated", workload="synthetic", pool="cpu",
                device="cpu", cell=f"{cell}", repeat=repeat + 1, index=int(when[cell, repeat]), axes={NAME: cell}, parameters={NAME: cell},
            )  # fmt: skip
            started = 60.0 * float(when[cell, repeat])
            result = TrialResult(key=trial.key, attempt=1, outcome=Outcome.OK, started_at=started, finished_at=started + 50, summary={})
            made[-1].append((trial, result))
    return made


def made_cells(trials: list[list[tuple[Trial, TrialResult]]], logs: Array) -> list[Cell]:
    rows = [
        TrialRow(trial, result, {"throughput": RATE * math.exp(logs[cell, repeat])})
        for repeat in range(logs.shape[1])
        for cell in range(logs.shape[0])
        for trial, result in [trials[cell][repeat]]
    ]
    return make_cells(rows, SUITE)


def measure(scenario: Scenario, rounds: int, cells: int, tables: int, seed: int) -> Counts:
    """Counts over `tables` sweeps of `cells` cells with `rounds` repeats each. The same seed gives the same tables."""
    random = np.random.default_rng([seed, rounds, cells])
    truth = float(np.mean([scenario.make(random, cells, rounds).mean() for _ in range(500)]))
    trials, counts = trials_of(cells, rounds), Counts()
    for number in range(tables):
        logs = scenario.make(random, cells, rounds)
        equal(made_cells(trials, logs), RATE * math.exp(truth), counts)
        effect = EFFECTS[number % 2]
        logs[-1] += math.log1p(effect)
        faster = made_cells(trials, logs)[-1].verdict is Verdict.FASTER
        counts.add(f"finds {effect:.0%}", faster)
    return counts


def equal(cells: list[Cell], truth: float, counts: Counts) -> None:
    """Count what is said of cells that are all equal, each with the rate `truth` in samples/s."""
    others = [cell for cell in cells if cell.speedup is not None]
    wrong = [cell.verdict in DECIDED for cell in others]
    counts.add("ratio covers", sum(cell.speedup.low <= 1 <= cell.speedup.high for cell in others if cell.speedup), len(others))
    counts.add("false verdict, cell", sum(wrong), len(others))
    counts.add("false verdict, table", any(wrong))
    counts.add("same", sum(cell.verdict is Verdict.SAME for cell in others), len(others))
    counts.add("cell covers", sum(cell.estimate.low <= truth <= cell.estimate.high for cell in cells if cell.estimate), len(cells))
    counts.half_widths += [half_width(cell.speedup) for cell in others if cell.speedup]
    best = max(cells, key=lambda cell: cell.estimate.value if cell.estimate else 0.0)
    beaten = [found.verdict is Verdict.FASTER for found in judge_best(best, [cell for cell in cells if cell is not best])]
    counts.add("falsely beaten", any(beaten))


def half_width(ratio: Estimate) -> float:
    """Of the interval of the logarithm."""
    return math.log(ratio.high / ratio.low) / 2 if ratio.low > 0 else math.inf


def own_intervals(tables: int, seed: int) -> Iterator[dict[str, object]]:
    """Coverage and median half-width of a cell's own interval, of 1 to 5 trials, without and with the pool's known spread.

    The pool's cells have variances from the scaled inverse chi-squared distribution that is known: 1 %, 10 degrees of freedom. *noisy*: a
    cell with 5 %, of which what is known of the pool is wrong.
    """
    known = Spread(0.01, 10)
    random = np.random.default_rng(seed)
    for kind in ("of the pool", "noisy"):
        for trials in (1, 2, 3, 5):
            row: dict[str, object] = {"name": f"own interval, {kind}", "trials": trials}
            for name, given in (("own", None), ("known", known)):
                held, widths = 0, []
                for _ in range(tables):
                    sd = known.sd * math.sqrt(known.df / random.chisquare(known.df)) if kind == "of the pool" else 0.05
                    logs = sd * random.normal(size=trials)
                    made = made_cells(trials_of(1, trials), logs[None])[0]
                    found = repeats_interval(made.estimates, known=given)
                    held += found.low <= RATE <= found.high
                    widths.append(half_width(found))
                row |= {f"{name} covers": held / tables, f"{name} half-width": float(np.median(widths))}
            yield row


def pooled(tables: int, seed: int) -> Iterator[dict[str, object]]:
    """Coverage of ratios if variances were pooled over 12 cells: always, or unless a test finds that they differ."""
    for scenario in SCENARIOS:
        if scenario.name not in POOLED:
            continue
        for level in (0.0, 0.05, 0.25):
            random, row = np.random.default_rng(seed), {}
            for rounds in REPEATS:
                row[f"{rounds} repeats"] = float(np.mean([ratio_covers(scenario.make(random, 12, rounds), level) for _ in range(tables)]))
            yield {"name": f"pooled, test at {level:.0%}, {scenario.name}", **row}


def figures(counts: Counts) -> dict[str, float]:
    return {**{name: counts.share(name) for name in SHOWN}, "half-width": float(np.median(counts.half_widths))}


SHOWN = {  # what was counted: its column
    "ratio covers": "ratio's interval holds",
    "cell covers": "own interval holds",
    "false verdict, cell": "false verdicts: cell",
    "false verdict, table": "table",
    "falsely beaten": "by the best",
    "same": "says *same*",
    "finds 5%": "finds 5 %",
    "finds 3%": "finds 3 %",
}


def markdown(title: str, found: dict[tuple[str, int], Counts]) -> str:
    """A row for each name; each place has the figures of 2, 3 and 5 repeats."""
    header = [f"{title} ({', '.join(map(str, REPEATS))} repeats)", *SHOWN.values(), "half-width"]
    lines = [f"| {' | '.join(header)} |", f"| :-- |{' --: |' * (len(header) - 1)}"]
    for name in dict.fromkeys(name for name, _ in found):
        rows = [figures(found[name, rounds]) for rounds in REPEATS]
        places = [" · ".join(f"{100 * row[key]:.1f}" for row in rows) for key in (*SHOWN, "half-width")]
        lines.append(f"| {name} | {' | '.join(places)} |")
    return "\n".join(lines)


def rounds_found(tables: int, seed: int) -> Iterator[dict[str, object]]:
    """In which share of sweeps rounds that act on half of the cells, by 2 % and beside 0.5 % of each trial's own, are found to do so; the
    cells are equal. *all*: rounds that act on all cells, which is wrong to find."""
    for kind, make in (("half", by_rounds_of_half(0.005, 0.02)), ("all", by_rounds(0.005, 0.02))):
        for cells in (3, 5, 8, 12):
            random, row = np.random.default_rng([seed, cells]), {}
            for rounds in (3, 5):
                trials = trials_of(cells, rounds)
                layouts = [made_cells(trials, make(random, cells, rounds))[0].layout for _ in range(tables)]
                row[f"{rounds} repeats"] = float(np.mean([layout.rounds_differ for layout in layouts if layout is not None]))
            yield {"name": f"rounds of {kind} found, {cells} cells", **row}


def single_trials(tables: int) -> dict[str, object]:
    """Sweeps of one trial a cell: nothing may be said of them."""
    counts = Counts()
    for number, scenario in enumerate(SCENARIOS):
        for cells in CELLS:
            counts.merge(measure(scenario, 1, cells, tables, seed=number))
    verdicts = counts.hits["false verdict, cell"] + counts.hits["same"] + counts.hits["finds 5%"] + counts.hits["finds 3%"]
    unbounded = sum(math.isinf(width) for width in counts.half_widths) / len(counts.half_widths)
    return {"name": "one trial a cell", "sweeps": counts.of["false verdict, table"], "verdicts": verdicts, "unbounded": unbounded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=150, help="sweeps for each noise, number of repeats and number of cells")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/verdicts.md instead of JSON lines")
    parser.add_argument("--noise", action="append", choices=[scenario.name for scenario in SCENARIOS], help="only this; may be repeated")
    options = parser.parse_args()
    began, cpu = time.time(), time.process_time()
    by_noise: dict[tuple[str, int], Counts] = defaultdict(Counts)
    by_cells: dict[tuple[str, int], Counts] = defaultdict(Counts)
    for number, scenario in enumerate(SCENARIOS):
        if options.noise and scenario.name not in options.noise:
            continue
        for rounds in REPEATS:
            for cells in CELLS:
                counts = measure(scenario, rounds, cells, options.tables, seed=number)
                by_noise[scenario.name, rounds].merge(counts)
                by_cells[f"{cells} cells", rounds].merge(counts)
    own = list(own_intervals(10 * options.tables, seed=len(SCENARIOS)))
    others = [*pooled(20 * options.tables, seed=len(SCENARIOS) + 1), *rounds_found(2 * options.tables, seed=len(SCENARIOS) + 2)]
    others += quiet_pairs(20 * options.tables, seed=len(SCENARIOS) + 3)
    single = single_trials(max(1, options.tables // 50))
    if options.markdown:
        print("\n\n".join([markdown("noise", by_noise), markdown("cells", by_cells), own_markdown(own)]), end="\n\n")
        print("\n".join(map(json.dumps, [*others, single])))
    else:
        for (name, rounds), counts in [*by_noise.items(), *by_cells.items()]:
            print(json.dumps({"name": f"{name}, {rounds} repeats", **figures(counts)}))
        for row in [*own, *others, single]:
            print(json.dumps(row))
    count = sum(counts.of["false verdict, table"] for counts in by_noise.values())
    print(f"{count} sweeps, {time.time() - began:.0f} s, {time.process_time() - cpu:.0f} s of CPU", file=sys.stderr)


def own_markdown(rows: list[dict[str, object]]) -> str:
    lines = ["| one cell's own interval | trials | own repeats alone | with the pool's known spread |", "| :-- | --: | --: | --: |"]
    for row in rows:
        shown = []
        for name in ("own", "known"):
            covers, width = row[f"{name} covers"], row[f"{name} half-width"]
            assert isinstance(covers, float) and isinstance(width, float)
            shown.append(f"holds {100 * covers:.1f} %, ±{100 * width:.1f} %" if math.isfinite(width) else "unbounded")
        lines.append(f"| {str(row['name']).partition(', ')[2]} | {row['trials']} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
