"""How often nights raise a false alarm and find a slow-down, and what that takes, beside other projects' rules. Simulated noise.

    make bench-nightly            the tables of docs/nights.md
    python -m benchmarks.bench_nightly --runs 1000

Each run has 60 nights of history, of which ours uses the last 20, and three nights that are judged. Ours judges with the code of real
nights: a screen of three trials, then pairs of two commits. False alarms are counted in a fifth of the runs, with 50 cells each;
slow-downs in all, with five cells each, all slower: a cell's verdict by pairs does not depend on the others
(tests/benchmarks/test_two_commits.py). The other rules are given as many trials of each cell on every night as ours takes of unchanged
cells on average, rounded up. Ours is measured a second time where other work disturbs a share of all trials (`DISTURBED`): those do not
count, and pairs are measured again, as on real nights. Prints a JSON line for each rule and noise.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.noise import FAMILIES, JUDGED, RECORDING, TRIALS, Family, Nights, disturbed
from benchmarks.rules import RULES, Otava, Rule
from benchmarks.two_commits import alarms, by_history, creep_found, two_commits
from experiments.regression.decision import FASTER, SLOWER, UNDECIDED

HISTORY = 60
CELLS = (8, 20, 50)
MOST = CELLS[-1]
CHANGED = 5  # cells of a run in which something changed
EQUAL = 0.01  # the false-alarm rate at which rules are compared
CHUNK = 50
CREEP = 0.003  # a night
DISTURBED = (0.1, 0.3)  # shares of trials beside which others work
LENGTHS = (10, 15, 20, 30)  # nights of a creep
ALARM_GOAL, FIRST_GOAL, WITHIN_GOAL, TRIALS_GOAL = 0.01, 0.95, 0.95, 10.0

Array = NDArray[np.float64]


@dataclass
class Ours:
    """Of two-commit nights under one noise: rates over cell-nights. `false_alarms`: by number of cells; `found`: a slow-down of 5 % on its
    first night; `within`: one of 3 % in three nights; `faster`: a speed-up of 5 % on its first night; `trials`, `screened`, `undecided`: of
    unchanged cells."""

    noise: str
    false_alarms: dict[int, float]
    found: float
    within: float
    faster: float
    trials: float
    screened: float
    undecided: float
    disturbed: float = 0.0  # share of the trials

    @property
    def missed(self) -> bool:
        good = self.false_alarms[MOST] <= ALARM_GOAL and self.found >= FIRST_GOAL and self.within >= WITHIN_GOAL
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


def chunks(family: Family, runs: int, cells: int, seed: int, effect: float = 0.0, changed: int | None = None) -> Iterator[Nights]:
    """The runs in pieces that fit into the cache; the first `changed` cells (None: all) changed by `effect` (-0.05: slower by 5 %)."""
    size = CHUNK * (1 if cells > CHANGED else 10)
    for number, start in enumerate(range(0, runs, size)):
        nights = family(np.random.default_rng([seed, number]), min(size, runs - start), cells, HISTORY + JUDGED)
        nights.cells[:, :changed, -JUDGED:] += math.log1p(effect)
        nights.pairs[:, :changed, ..., 1] += math.log1p(effect)
        yield nights


def still(runs: int) -> int:
    """Runs in which nothing changes; they have ten times as many cells."""
    return max(1, runs // 5)


def measure_ours(noise: str, family: Family, runs: int, share: float = 0.0) -> Ours:
    """`share`: of all trials that other work disturbs."""
    if share:
        family = partial(_disturbed, family, share)
    null = [(two_commits(nights), nights.counted) for nights in chunks(family, still(runs), MOST, 0)]
    wrong = {
        cells: float(np.concatenate([alarms(judged.codes)[:, :cells][:, counted[:cells]] for judged, counted in null]).mean())
        for cells in CELLS
    }
    trials, screened, codes = (np.concatenate([getattr(judged, name) for judged, _ in null]) for name in ("trials", "screened", "codes"))
    rates = {
        "found": _share(family, runs, 1, -0.05, SLOWER, 1),
        "within": _share(family, runs, 2, -0.03, SLOWER, JUDGED),
        "faster": _share(family, runs, 3, 0.05, FASTER, 1),
    }
    undecided = float((screened & (codes == UNDECIDED)).mean())
    return Ours(noise, wrong, **rates, trials=float(trials.mean()), screened=float(screened.mean()), undecided=undecided, disturbed=share)


def _disturbed(family: Family, share: float, random: np.random.Generator, runs: int, cells: int, nights: int) -> Nights:
    return disturbed(family(random, runs, cells, nights), random, share)


def _share(family: Family, runs: int, seed: int, effect: float, code: int, nights_: int) -> float:
    """Of changed cells: those that got this code on one of the first nights."""
    hits = [
        (two_commits(nights, judged=nights_).codes[:, nights.counted] == code).any(-1)
        for nights in chunks(family, runs, CHANGED, seed, effect)
    ]
    return float(np.concatenate(hits).mean())


def measure_history(noise: str, family: Family, runs: int, cells: int) -> Other:
    """History alone, as where the environment is the suspect. One cell is slower: the false discovery rate depends on how many are."""
    null = [(by_history(nights), nights.counted) for nights in chunks(family, still(runs), cells, 0)]
    wrong = np.concatenate([alarms(judged.codes)[:, counted] for judged, counted in null])
    trials = np.concatenate([judged.trials for judged, _ in null]).mean()
    found = [by_history(nights).codes[:, 0] == SLOWER for nights in chunks(family, runs, cells, 4, -0.05, 1)]
    return Other(
        noise, f"history alone, {cells} cells", round(float(trials)), float(wrong.mean()), float(np.concatenate(found).mean()), math.nan
    )


def measure_other(rule: Rule, noise: str, family: Family, runs: int, trials: int) -> Other:
    slow = isinstance(rule, Otava)  # takes its time: one cell a run
    quiet = chunks(family, runs, CHANGED, 0) if slow else chunks(family, still(runs), MOST, 0)
    null = np.concatenate([score_of(rule, nights, trials)[:, nights.counted[: 1 if slow else None]].ravel() for nights in quiet])
    slower = np.concatenate(
        [
            score_of(rule, nights, trials)[:, nights.counted[: 1 if slow else None]].ravel()
            for nights in chunks(family, runs, CHANGED, 1, -0.05)
        ]
    )
    best = float(np.quantile(null, 1 - EQUAL, method="higher"))
    rates = (float((values > edge).mean()) for values, edge in ((null, rule.stock), (slower, rule.stock), (slower, best)))
    return Other(noise, rule.name, trials, *rates)


def score_of(rule: Rule, nights: Nights, trials: int) -> Array:
    """Of the first judged night, (runs, cells); of Otava's the first cell alone."""
    width = 1 if isinstance(rule, Otava) else nights.cells.shape[1]
    values = filled(nights.cells[:, :width, : -JUDGED + 1, :trials])
    return rule.score(values[:, :, :-1], values[:, :, -1])


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
        parts = [creep_found(nights, length, CREEP) for nights in chunks(family, runs, 1, 5)]
        _, found, shown = (np.concatenate(part) for part in zip(*parts, strict=True))
        result.found[length], result.shown[length] = float(found.mean()), float(shown.mean())
    parts = [creep_found(nights, LENGTHS[-1], 0.0) for nights in chunks(family, runs, 1, 6)]
    suspected, found, shown = (float(np.concatenate(part).mean()) for part in zip(*parts, strict=True))
    result.none = {"suspected": suspected, "found": found, "shown": shown}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="for each noise and effect")
    parser.add_argument("--noises", nargs="*", default=list(FAMILIES), help="some of the noises")
    parser.add_argument("--ours", action="store_true", help="without the other rules")
    parser.add_argument("--creep", action="store_true", help="of creep alone")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/nights.md instead of JSON lines")
    options = parser.parse_args()
    families = {name: FAMILIES[name] for name in options.noises if name != "recorded" or RECORDING.exists()}
    began = time.time()
    judged = {} if options.creep else families
    ours = [measure_ours(noise, family, options.runs) for noise, family in judged.items()]
    beside = [measure_ours(noise, family, options.runs, share) for share in DISTURBED for noise, family in judged.items()]
    creeps = [measure_creep(noise, family, options.runs) for noise, family in families.items()]
    others = [] if options.ours else _others(judged, ours, options.runs)
    if options.markdown:
        tables = _markdown(list(judged), ours, beside, others) if judged else []
        print("\n\n".join([*tables, _creep_table(creeps)]))
    for each in [] if options.markdown else [*ours, *beside, *others, *creeps]:
        print(json.dumps(asdict(each)))
    print(f"{options.runs} runs, {time.time() - began:.0f} s", file=sys.stderr)


def _others(families: Mapping[str, Family], ours: list[Ours], runs: int) -> list[Other]:
    taken = {each.noise: min(TRIALS, max(2, math.ceil(each.trials))) for each in ours}
    found = [measure_history(noise, family, runs, cells) for noise, family in families.items() for cells in (CELLS[0], MOST)]
    return found + [measure_other(rule, noise, family, runs, taken[noise]) for noise, family in families.items() for rule in RULES]


def _markdown(noises: list[str], ours: list[Ours], disturbed_: list[Ours], others: list[Other]) -> list[str]:
    at = {each.noise: each for each in ours}
    first = grid(
        [
            "two-commit nights",
            *(f"false alarms, {cells} cells" for cells in CELLS),
            "finds 5 % the first night",
            "finds 3 % in three",
            "5 % faster",
            "trials",
            "undecided",
            "goal",
        ],
        noises,
        lambda noise: _row(at[noise]),
    )
    return [first, _disturbed_table(noises, disturbed_), *([_rules(noises, others)] if others else [])]


def _creep_table(creeps: list[Creeps]) -> str:
    crept = {each.noise: each for each in creeps}
    return grid(
        [
            "creep of 0.3 %: found in pairs / shown by the trend",
            *(f"{length} nights" for length in LENGTHS),
            "no creep: suspected, found, shown",
        ],
        list(crept),
        lambda noise: [
            *(f"{percent(crept[noise].found[length])} / {percent(crept[noise].shown[length])}" for length in LENGTHS),
            ", ".join(percent(value) for value in crept[noise].none.values()),
        ],
    )


def _rules(noises: list[str], others: list[Other]) -> str:
    """The other rules, with as many trials."""
    beside = {(each.noise, each.rule): each for each in others}
    rules = list(dict.fromkeys(each.rule for each in others))
    return grid(
        ["false alarms / finds 5 %, at its best threshold", "trials", *rules],
        noises,
        lambda noise: [f"{beside[noise, rules[-1]].trials}", *(_beside(beside[noise, rule]) for rule in rules)],
    )


def _disturbed_table(noises: list[str], found: list[Ours]) -> str:
    """Two-commit nights where a share of all trials was disturbed."""
    at = {(each.noise, each.disturbed): each for each in found}
    columns = ("false alarms", "finds 5 %", "finds 3 % in three", "trials", "undecided")
    head = [f"{column}, {percent(share, 0)}" for share in DISTURBED for column in columns]
    return grid(
        ["trials that other work disturbs", *head], noises, lambda noise: [one for share in DISTURBED for one in _five(at[noise, share])]
    )


def _five(each: Ours) -> list[str]:
    rates = (percent(each.false_alarms[MOST], 2), percent(each.found), percent(each.within))
    return [*rates, f"{each.trials:.1f}", percent(each.undecided)]


def _row(each: Ours) -> list[str]:
    wrong = [percent(each.false_alarms[cells], 2) for cells in CELLS]
    rates = [percent(value) for value in (each.found, each.within, each.faster)]
    return [*wrong, *rates, f"{each.trials:.1f}", percent(each.undecided), "missed" if each.missed else "reached"]


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
