"""How often nights raise a false alarm, and how often they find a slow-down, beside other projects' rules. Simulated noise.

    make bench-nightly            the table
    python -m benchmarks.bench_nightly --runs 2000 --markdown

Each run is one night of eight cells after 60 nights of history (ours uses the last 20); in runs with an effect the first cell is slower
by that much. Ours measures three trials of each cell a night, and up to eight of those that stay undecided; the others are given eight
trials of each cell on every night. Prints one JSON line for each rule and noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.noise import FAMILIES, RECORDED, Family, Nights
from benchmarks.rules import RULES, Otava, Rule
from experiments.regression.decision import ALPHA, FASTER, SLOWER, UNDECIDED, decide
from experiments.regression.effect import night_effect
from experiments.stats.sequential import interim_levels

HISTORY = 60
OURS = 20  # baseline_nights
LOOKS = [3, 5, 8]
MINIMUM = 0.03
EFFECTS = (0.0, 0.03, 0.05, 0.08)
EQUAL = 0.01  # the false-alarm rate at which rules are compared
CHUNK = 250


@dataclass
class Outcome:
    """Of one rule under one noise: rates over cell-nights. `power`: by effect, the share of such slow-downs found; `equal`: that of 5 %
    with the threshold moved so that 1 % of this noise's nights are false alarms; `pooled`: the same with one threshold for all noises,
    at which 1 % of all are."""

    noise: str
    rule: str
    false_alarms: float
    power: dict[float, float]
    equal: float = 0.0
    pooled: float = 0.0
    undecided: float | None = None
    trials: float = 8.0


def ours(nights: Nights, history: int, before: int) -> tuple[NDArray[np.int8], NDArray[np.int_], NDArray[np.float64]]:
    """Codes of `experiments.regression.decision` for (runs, cells), the trials each took, and a score to move the threshold by.

    This is the code that decides real nights. `before`: trials of each cell on the past nights.
    """
    past, now = nights.cells[:, :, -1 - history : -1, :before], nights.cells[:, :, -1]
    canary = np.broadcast_to(nights.canary[:, None], nights.cells.shape)
    canary_past, canary_now = canary[:, :, -1 - history : -1, :before], canary[:, :, -1]
    taken = np.full(now.shape[:2], LOOKS[0])
    levels = np.array(interim_levels(LOOKS, ALPHA))
    codes = np.full(now.shape[:2], UNDECIDED, dtype=np.int8)
    for look in LOOKS:
        taken = np.where(codes == UNDECIDED, look, taken)
        there = np.arange(now.shape[-1]) < taken[..., None]
        width = max(look, before)
        effect = night_effect(
            _pad(past, width),
            np.where(there, now, np.nan)[..., :width],
            _pad(canary_past, width),
            np.where(there, canary_now, np.nan)[..., :width],
        )
        codes, _ = decide(effect, MINIMUM, levels[np.searchsorted(LOOKS, taken)])
    return codes, taken, np.where(np.abs(effect.effect) >= np.log1p(MINIMUM), -effect.p_value, -1.0)


def _pad(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    room = np.full((*values.shape[:-1], max(0, width - values.shape[-1])), np.nan)
    return np.concatenate([values, room], axis=-1)


def chunks(family: Family, runs: int, effect: float, seed: int) -> Iterator[Nights]:
    """The runs in pieces that fit into the cache; the first cell is slower tonight by `effect`."""
    for number, start in enumerate(range(0, runs, CHUNK)):
        random = np.random.default_rng([seed, number])
        nights = family(random, min(CHUNK, runs - start), HISTORY + 1)
        nights.cells[:, 0, -1] += np.log1p(-effect)
        yield nights


def measure_all_ours(families: Mapping[str, Family], runs: int) -> list[Outcome]:
    measured = [measure_ours(noise, family, runs) for noise, family in families.items()]
    pooled = _threshold(np.concatenate([null for _, null, _ in measured]))
    for outcome, _, slower in measured:
        outcome.pooled = float((slower > pooled).mean())
    return [outcome for outcome, _, _ in measured]


def measure_ours(noise: str, family: Family, runs: int, history: int = OURS) -> tuple[Outcome, NDArray[np.float64], NDArray[np.float64]]:
    """With the scores of cells that did not change and of those that are 5 % slower.

    Past nights have as many trials as the looks take of an unchanged cell on average, which is found first.
    """
    first = [ours(nights, history, LOOKS[0])[1].mean() for nights in chunks(family, min(runs, CHUNK), 0.0, 99)]
    before = round(float(np.mean(first)))
    power, undecided, trials, false_alarms = {}, 0.0, 0.0, 0.0
    null = slower = np.empty(0)
    for number, effect in enumerate(EFFECTS):
        results = [ours(nights, history, before) for nights in chunks(family, runs, effect, number)]
        codes, taken, score = (np.concatenate([result[part] for result in results]) for part in (0, 1, 2))
        if effect == 0:
            null = score.ravel()
            false_alarms = float(np.isin(codes, (SLOWER, FASTER)).mean())
            undecided, trials = float((codes == UNDECIDED).mean()), float(taken.mean())
        else:
            power[effect] = float((codes[:, 0] == SLOWER).mean())
        if effect == 0.05:
            slower = score[:, 0]
    equal = float((slower > _threshold(null)).mean())
    return Outcome(noise, "sweepbench", false_alarms, power, equal, 0.0, undecided, trials), null, slower


def measure(rule: Rule, families: Mapping[str, Family], runs: int) -> list[Outcome]:
    """One rule under every noise: with its own threshold, and with those at which it raises 1 % false alarms."""
    scores = {noise: _scores(rule, family, runs) for noise, family in families.items()}
    pooled = _threshold(np.concatenate([mine[0.0].ravel() for mine in scores.values()]))
    outcomes = []
    for noise, mine in scores.items():
        power = {effect: float((score[:, 0] > rule.stock).mean()) for effect, score in mine.items() if effect}
        equal, same = (float((mine[0.05][:, 0] > threshold).mean()) for threshold in (_threshold(mine[0.0].ravel()), pooled))
        outcomes.append(Outcome(noise, rule.name, float((mine[0.0] > rule.stock).mean()), power, equal, same))
    return outcomes


def _scores(rule: Rule, family: Family, runs: int) -> dict[float, NDArray[np.float64]]:
    """By effect: (runs, cells) where nothing changed, (runs, 1) where the first cell did. Otava is slow: it gets one cell."""
    scores = {}
    for number, effect in enumerate(EFFECTS):
        parts = []
        for nights in chunks(family, runs, effect, number):
            cells = nights.cells if effect == 0 and not isinstance(rule, Otava) else nights.cells[:, :1]
            parts.append(rule.score(cells[:, :, :-1], cells[:, :, -1]))
        scores[effect] = np.concatenate(parts)
    return scores


def _threshold(null: NDArray[np.float64]) -> float:
    """The lowest threshold that at most 1 % of the null scores exceed."""
    return float(np.quantile(null, 1 - EQUAL, method="higher"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="nights of eight cells for each noise and effect")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/nights.md instead of JSON lines")
    options = parser.parse_args()
    families = {name: family for name, family in FAMILIES.items() if name != "recorded" or RECORDED.exists()}
    began = time.time()
    outcomes = measure_all_ours(families, options.runs)
    outcomes += [outcome for rule in RULES for outcome in measure(rule, families, options.runs)]
    short, _, _ = measure_ours("quiet, 8 nights", FAMILIES["quiet"], options.runs, 8)
    if options.markdown:
        print(_markdown(outcomes, list(families)))
    for outcome in [] if options.markdown else [*outcomes, short]:
        print(json.dumps({"name": f"{outcome.noise}: {outcome.rule}", **_figures(outcome)}))
    print(f"{options.runs} nights of 8 cells for each noise and effect, {time.time() - began:.0f} s", file=sys.stderr)
    if options.markdown:
        print(f"with 8 nights of history: {_figures(short)}", file=sys.stderr)


def _markdown(outcomes: list[Outcome], noises: list[str]) -> str:
    by = {(outcome.rule, outcome.noise): outcome for outcome in outcomes}
    rules = list(dict.fromkeys(outcome.rule for outcome in outcomes))

    def grid(title: str, names: list[str], text: Callable[[Outcome], str]) -> list[str]:
        lines = [f"| {title} | {' | '.join(noises)} |", f"| :-- |{' --: |' * len(noises)}"]
        return lines + [f"| {rule} | {' | '.join(text(by[rule, noise]) for noise in noises)} |" for rule in names]

    stock = grid("false alarms / finds 5 %", rules, lambda one: f"{one.false_alarms:.2%} / {one.power[0.05]:.1%}".replace("%", " %"))
    equal = grid(
        "finds 5 % at 1 % false alarms: tuned to the noise / one threshold",
        rules,
        lambda one: f"{one.equal:.1%} / {one.pooled:.1%}".replace("%", " %"),
    )
    mine = grid(
        "finds 3 % / 8 %, undecided, trials",
        rules[:1],
        lambda one: f"{one.power[0.03]:.0%} / {one.power[0.08]:.0%}, {one.undecided:.1%}, {one.trials:.1f}".replace("%", " %"),
    )
    return "\n".join([*stock, "", *equal, "", *mine])


def _figures(outcome: Outcome) -> dict[str, float | None]:
    rates = {f"finds {effect:.0%}": value for effect, value in outcome.power.items()}
    rest = {"finds 5% tuned": outcome.equal, "finds 5% one threshold": outcome.pooled}
    return {"false alarms": outcome.false_alarms, **rates, **rest, "undecided": outcome.undecided, "trials": outcome.trials}


if __name__ == "__main__":
    main()
