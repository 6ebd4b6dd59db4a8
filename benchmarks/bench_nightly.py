"""How often nights raise a false alarm, how often they find a slow-down, and what that takes, beside other projects' rules. Simulated noise.

    make bench-nightly            the tables of docs/nights.md
    python -m benchmarks.bench_nightly --runs 1000

Each run has 60 nights of history, of which ours uses the last 20, and three nights that are judged. Where something changed, a tenth of the
cells is slower from the first of these on. Ours judges with the code of real nights: a screen of three trials, then pairs of two commits.
The others are given as many trials of each cell on every night as ours takes of unchanged cells on average, rounded up. Prints a JSON line
for each rule and noise.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.noise import FAMILIES, JUDGED, RECORDING, TRIALS, Family, Nights
from benchmarks.rules import RULES, Otava, Rule
from benchmarks.two_commits import alarms, by_history, creep_found, two_commits
from experiments.regression.decision import FASTER, SLOWER, UNDECIDED

HISTORY = 60
CELLS = (8, 20, 50)
MOST = CELLS[-1]
EQUAL = 0.01  # the false-alarm rate at which rules are compared
CHUNK = 50
CREEP = 0.003  # a night
LENGTHS = (10, 15, 20, 30)  # nights of a creep
ALARM_GOAL, FIRST_GOAL, WITHIN_GOAL, TRIALS_GOAL = 0.01, 0.95, 0.95, 10.0

Array = NDArray[np.float64]


@dataclass
class Ours:
    """Of two-commit nights under one noise: rates over cell-nights. `found`: a slow-down of 5 % on its first night; `within`: one of 3 % in
    three nights; `faster`: a speed-up of 5 % on its first night; `trials`, `screened`, `undecided`: of unchanged cells."""

    noise: str
    cells: int
    false_alarms: float
    found: float
    within: float
    faster: float
    trials: float
    screened: float
    undecided: float

    @property
    def missed(self) -> bool:
        good = self.false_alarms <= ALARM_GOAL and self.found >= FIRST_GOAL and self.within >= WITHIN_GOAL
        return not (good and self.trials <= TRIALS_GOAL)


@dataclass
class Other:
    """Of another rule under one noise: false alarms and 5 % found with its own threshold, and found with the one at which 1 % of this
    noise's nights are false alarms (`tuned`: its best)."""

    noise: str
    rule: str
    trials: int
    false_alarms: float
    found: float
    tuned: float


@dataclass
class Creeps:
    """Of a loss of 0.3 % a night, by nights: the share found in pairs, and shown by the trend alone; and of segments without: `suspected`
    (of which pairs are made), falsely `found`, falsely `shown`."""

    noise: str
    found: dict[int, float] = field(default_factory=dict)
    shown: dict[int, float] = field(default_factory=dict)
    none: dict[str, float] = field(default_factory=dict)


def chunks(family: Family, runs: int, cells: int, seed: int, effect: float = 0.0) -> Iterator[Nights]:
    """The runs in pieces that fit into the cache; a tenth of the cells changed by `effect` (-0.05: slower by 5 %) on the judged nights."""
    for number, start in enumerate(range(0, runs, CHUNK)):
        nights = family(np.random.default_rng([seed, number]), min(CHUNK, runs - start), cells, HISTORY + JUDGED)
        nights.cells[:, : changed(cells), -JUDGED:] += math.log1p(effect)
        nights.pairs[:, : changed(cells), ..., 1] += math.log1p(effect)
        yield nights


def changed(cells: int) -> int:
    return max(1, cells // 10)


def measure_ours(noise: str, family: Family, runs: int, cells: int) -> Ours:
    null = [(two_commits(nights), nights.counted) for nights in chunks(family, runs, cells, 0)]
    wrong = np.concatenate([alarms(judged.codes)[:, counted] for judged, counted in null])
    trials, screened, codes = (np.concatenate([getattr(judged, name) for judged, _ in null]) for name in ("trials", "screened", "codes"))
    share = {}
    for name, seed, effect, code, nights_ in (
        ("found", 1, -0.05, SLOWER, 1),
        ("within", 2, -0.03, SLOWER, JUDGED),
        ("faster", 3, 0.05, FASTER, 1),
    ):
        hits = []
        for nights in chunks(family, runs, cells, seed, effect):
            where = np.flatnonzero(nights.counted[: changed(cells)])
            hits.append((two_commits(nights).codes[:, where, :nights_] == code).any(-1))
        share[name] = float(np.concatenate(hits).mean())
    undecided = float((codes[screened] == UNDECIDED).mean() * screened.mean()) if screened.any() else 0.0
    return Ours(noise, cells, float(wrong.mean()), **share, trials=float(trials.mean()), screened=float(screened.mean()), undecided=undecided)


def measure_history(noise: str, family: Family, runs: int, cells: int) -> Other:
    """History alone, as where the environment is the suspect. One cell is slower: the false discovery rate depends on how many are."""
    null = [(by_history(nights), nights.counted) for nights in chunks(family, runs, cells, 0)]
    wrong = np.concatenate([alarms(judged.codes)[:, counted] for judged, counted in null])
    trials = np.concatenate([judged.trials for judged, _ in null]).mean()
    found = []
    for nights in chunks(family, runs, cells, 4):
        nights.cells[:, 0, -JUDGED:] += math.log1p(-0.05)
        found.append(by_history(nights).codes[:, 0] == SLOWER)
    return Other(noise, f"history alone, {cells} cells", round(float(trials)), float(wrong.mean()), float(np.concatenate(found).mean()), math.nan)


def measure_other(rule: Rule, noise: str, family: Family, runs: int, trials: int) -> Other:
    null = np.concatenate([score_of(rule, nights, trials)[:, nights.counted[: _width(rule, MOST)]].ravel() for nights in chunks(family, runs, MOST, 0)])
    slower = np.concatenate([score_of(rule, nights, trials)[:, 0] for nights in chunks(family, runs, MOST, 1, -0.05)])
    best = float(np.quantile(null, 1 - EQUAL, method="higher"))
    rates = (float((values > edge).mean()) for values, edge in ((null, rule.stock), (slower, rule.stock), (slower, best)))
    return Other(noise, rule.name, trials, *rates)


def score_of(rule: Rule, nights: Nights, trials: int) -> Array:
    """Of the first judged night, (runs, cells)."""
    values = filled(nights.cells[:, : _width(rule, nights.cells.shape[1]), : -JUDGED + 1, :trials])
    return rule.score(values[:, :, :-1], values[:, :, -1])


def _width(rule: Rule, cells: int) -> int:
    return 1 if isinstance(rule, Otava) else cells  # which takes its time


def filled(values: Array) -> Array:
    """A trial that is missing takes its night's mean, a night that is missing the last before it: these rules know no gaps."""
    if np.isfinite(values).all():
        return values
    count = np.isfinite(values).sum(-1)
    mean = np.where(count > 0, np.nansum(values, axis=-1) / np.maximum(count, 1), np.nan)
    whole = np.where(np.isnan(values), mean[..., None], values)
    last = np.maximum.accumulate(np.where(count > 0, np.arange(count.shape[-1]), 0), axis=-1)
    whole = np.take_along_axis(whole, last[..., None], axis=-2)
    return np.where(np.isnan(whole), np.nanmedian(whole, axis=(-2, -1), keepdims=True), whole)


def measure_creep(noise: str, family: Family, runs: int) -> Creeps:
    result = Creeps(noise)
    for length in LENGTHS:
        parts = [creep_found(nights, length, CREEP) for nights in chunks(family, runs, changed(MOST), 5)]
        _, found, shown = (np.concatenate(part) for part in zip(*parts, strict=True))
        result.found[length], result.shown[length] = float(found.mean()), float(shown.mean())
    parts = [creep_found(nights, LENGTHS[-1], 0.0) for nights in chunks(family, runs, changed(MOST), 6)]
    suspected, found, shown = (float(np.concatenate(part).mean()) for part in zip(*parts, strict=True))
    result.none = {"suspected": suspected, "found": found, "shown": shown}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs of 50 cells for each noise and effect; as many cells of fewer in more")
    parser.add_argument("--noises", nargs="*", default=list(FAMILIES), help="some of the noises")
    parser.add_argument("--ours", action="store_true", help="without the other rules")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/nights.md instead of JSON lines")
    options = parser.parse_args()
    families = {name: FAMILIES[name] for name in options.noises if name != "recorded" or RECORDING.exists()}
    began = time.time()
    ours = [
        measure_ours(noise, family, options.runs * (1 if cells == MOST else 2), cells) for noise, family in families.items() for cells in CELLS
    ]
    creeps = [measure_creep(noise, family, options.runs) for noise, family in families.items()]
    others = [] if options.ours else _others(families, ours, options.runs)
    if options.markdown:
        print(_markdown(list(families), ours, others, creeps))
    for each in [] if options.markdown else [*ours, *others, *creeps]:
        print(json.dumps(asdict(each)))
    print(f"{options.runs} runs, {time.time() - began:.0f} s", file=sys.stderr)


def _others(families: Mapping[str, Family], ours: list[Ours], runs: int) -> list[Other]:
    taken = {each.noise: min(TRIALS, max(2, math.ceil(each.trials))) for each in ours if each.cells == MOST}
    found = [measure_history(noise, family, runs, cells) for noise, family in families.items() for cells in (CELLS[0], MOST)]
    return found + [measure_other(rule, noise, family, runs, taken[noise]) for noise, family in families.items() for rule in RULES]


def _markdown(noises: list[str], ours: list[Ours], others: list[Other], creeps: list[Creeps]) -> str:
    at = {(each.noise, each.cells): each for each in ours}
    beside = {(each.noise, each.rule): each for each in others}
    rules = list(dict.fromkeys(each.rule for each in others))
    first = grid(
        ["two-commit nights, 50 cells", "false alarms", "finds 5 % the first night", "finds 3 % in three", "5 % faster", "trials", "undecided"],
        noises,
        lambda noise: _row(at[noise, MOST]),
    )
    second = grid(
        ["by number of cells: false alarms / finds 5 %", *(f"{cells}" for cells in CELLS)],
        noises,
        lambda noise: [f"{percent(at[noise, cells].false_alarms, 2)} / {percent(at[noise, cells].found)}" for cells in CELLS],
    )
    third = grid(
        ["false alarms / finds 5 %, at its best threshold", "trials", *rules],
        noises,
        lambda noise: [f"{beside[noise, rules[-1]].trials}", *(_beside(beside[noise, rule]) for rule in rules)],
    )
    crept = {each.noise: each for each in creeps}
    fourth = grid(
        ["creep of 0.3 %: found in pairs / shown by the trend", *(f"{length} nights" for length in LENGTHS), "no creep: suspected, found, shown"],
        noises,
        lambda noise: [
            *(f"{percent(crept[noise].found[length])} / {percent(crept[noise].shown[length])}" for length in LENGTHS),
            ", ".join(percent(value) for value in crept[noise].none.values()),
        ],
    )
    return "\n\n".join([first, second, *([third] if others else []), fourth])


def _row(each: Ours) -> list[str]:
    mark = " (missed)" if each.missed else ""
    rates = [percent(value) for value in (each.found, each.within, each.faster)]
    return [percent(each.false_alarms, 2) + mark, *rates, f"{each.trials:.1f}", percent(each.undecided)]


def _beside(each: Other) -> str:
    text = f"{percent(each.false_alarms)} / {percent(each.found)}"
    return text if math.isnan(each.tuned) else f"{text}, {percent(each.tuned)}"


def grid(head: list[str], rows: list[str], cells: Callable[[str], list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| :-- |{' --: |' * (len(head) - 1)}"]
    return "\n".join(lines + [f"| {row} | {' | '.join(cells(row))} |" for row in rows])


def percent(share: float, digits: int = 1) -> str:
    return f"{share * 100:.{digits}f} %"


if __name__ == "__main__":
    main()
