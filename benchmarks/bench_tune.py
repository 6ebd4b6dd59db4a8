"""How often `sweep tune` names a wrong winner among 200 settings, and what it costs beside fixed repeats of all of them. Simulated noise.

    python -m benchmarks.bench_tune --runs 200 --markdown

Each run draws 200 settings, the product of five axes (2 x 2 x 2 x 5 x 5) whose values change the speed by 2 to 10 %, three in ten of them
by up to 50 %, and their noise. The race is that of `sweep tune`: `experiments.stats.race.standing` after each round, while the next round
fits in 1,200 trials. It is decided when one setting is left, or the leader is surely not 2 % behind any that is left. A run is wrong if
the best was dropped, or the race is decided for a leader that is more than 2 % slower than the best.

The full grid is 30 repeats of all 200, 6,000 trials, judged once by the same test at the same chance of 5 %: five times the race's trials,
to decide about as often. *Guess*: the best mean of n repeats of all settings, which claims nothing; the smallest n with which at most 5 %
of the guesses are more than 2 % slower than the best.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.stats.interim_looks import RACE_CHANCE
from experiments.stats.race import level_of, standing

Array = NDArray[np.float64]
AXES = (2, 2, 2, 5, 5)
ROUNDS = 80  # drawn for each setting
GRID = 30  # repeats
FIFTH = math.prod(AXES) * GRID // 5  # trials
MARGIN = math.log1p(0.02)
REPEATS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, GRID)


@dataclass(frozen=True)
class Settings:
    """Speeds (settings,) and what trials add to them, (settings, rounds), both logarithms; `drift`: the machine slows so much a trial."""

    speed: Array
    noise: Array
    drift: float = 0.0

    @property
    def best(self) -> int:
        return int(self.speed.argmax())

    def behind(self, setting: int) -> bool:
        """Whether it is more than the margin slower than the best."""
        return bool(self.speed.max() - self.speed[setting] > MARGIN)


def speeds(random: np.random.Generator) -> Array:
    total = np.zeros(1)
    for count in AXES:
        size = math.log1p(math.exp(random.uniform(math.log(0.02), math.log(0.5 if random.random() < 0.3 else 0.1))))
        place = random.random(count)
        total = (total[:, None] + size * (place - place.min()) / np.ptp(place)).ravel()
    return total + 0.005 * random.normal(size=total.size)  # axes do not simply multiply


Draw = Callable[[np.random.Generator, int], tuple[Array, float]]  # generator, best setting -> noise (settings, rounds), drift a trial
_SHAPE = (math.prod(AXES), ROUNDS)


def normal(low: float, high: float) -> Draw:
    """Each setting's trials lie `low` to `high` apart."""
    return lambda random, _: (random.uniform(low, high, size=(_SHAPE[0], 1)) * random.normal(size=_SHAPE), 0.0)


def lognormal(random: np.random.Generator, _: int) -> tuple[Array, float]:
    sd = 0.015 * np.exp(0.6 * random.normal(size=(_SHAPE[0], 1)))
    return sd * random.normal(size=_SHAPE), 0.0


def some_noisy(random: np.random.Generator, _: int) -> tuple[Array, float]:
    sd = np.where(random.random((_SHAPE[0], 1)) < 1 / 6, 0.08, 0.01)
    return sd * random.normal(size=_SHAPE), 0.0


def best_noisy(random: np.random.Generator, best: int) -> tuple[Array, float]:
    sd = np.full((_SHAPE[0], 1), 0.015)
    sd[best] *= 5
    return sd * random.normal(size=_SHAPE), 0.0


def disturbed(random: np.random.Generator, _: int) -> tuple[Array, float]:
    slower = (random.random(_SHAPE) < 0.03) * random.uniform(0.05, 0.5, size=_SHAPE)
    return 0.015 * random.normal(size=_SHAPE) - slower, 0.0


def tails(random: np.random.Generator, _: int) -> tuple[Array, float]:
    return 0.012 * random.standard_t(3, size=_SHAPE), 0.0


def spells(random: np.random.Generator, _: int) -> tuple[Array, float]:
    """Rounds 2 % apart, and the machine slows by 5 % over the first 200 trials, and on."""
    return 0.02 * random.normal(size=_SHAPE) + 0.02 * random.normal(size=(1, ROUNDS)), 0.05 / _SHAPE[0]


FAMILIES: dict[str, Draw] = {
    "all 2 %": normal(0.02, 0.02),
    "1 to 3 %": normal(0.01, 0.03),
    "lognormal, 1.5 %": lognormal,
    "one in six 8 %, others 1 %": some_noisy,
    "1.5 %, the best 7.5 %": best_noisy,
    "1.5 %, 3 % of trials 5 to 50 % slower": disturbed,
    "t, 3 df, 1.2 %": tails,
    "2 %, drift and rounds": spells,
}


@dataclass
class Found:
    """What a race or a grid says: whom it has ahead, whether that is decided, and whether it left the best out."""

    leader: int
    decided: bool
    best_dropped: bool
    trials: int = 0
    left: int = 0

    def wrong(self, settings: Settings) -> bool:
        return self.best_dropped or (self.decided and settings.behind(self.leader))


def race(settings: Settings) -> Found:
    racing = np.ones(_SHAPE[0], bool)
    seen = np.full(_SHAPE, np.nan)
    trials, leader = 0, -1
    for number in range(ROUNDS):
        order = np.flatnonzero(racing)[:: -1 if number % 2 else 1]
        if trials + order.size > FIFTH:
            break
        seen[order, number] = settings.speed[order] + settings.noise[order, number] - settings.drift * (trials + np.arange(order.size))
        trials += order.size
        now = standing(seen[:, : number + 1], racing)
        racing &= ~now.dropped
        leader = now.leader
        if leader >= 0 and (racing.sum() == 1 or now.within(racing, MARGIN)):
            return Found(leader, True, not racing[settings.best], trials, int(racing.sum()))
    return Found(leader, False, not racing[settings.best], trials, int(racing.sum()))


def grid(settings: Settings) -> Found:
    """All settings GRID times, judged once: the whole chance goes to this one look."""
    places = np.arange(_SHAPE[0] * GRID).reshape(GRID, -1)
    places[1::2] = places[1::2, ::-1]
    everyone = np.ones(_SHAPE[0], bool)
    once = RACE_CHANCE / _SHAPE[0] / level_of(GRID, _SHAPE[0])
    now = standing(settings.speed[:, None] + settings.noise[:, :GRID] - settings.drift * places.T, everyone, chance=RACE_CHANCE * once)
    left = everyone & ~now.dropped
    decided = bool(left.sum() == 1 or now.within(left, MARGIN))
    return Found(now.leader, decided, not left[settings.best], _SHAPE[0] * GRID, int(left.sum()))


@dataclass
class Outcome:
    """Of one noise, shares of runs: `wrong`, `decided` of the race and of the grid, `leader_wrong`: the race's leader, decided or not, is
    more than 2 % slower than the best. `left` settings after `trials` of the race, means. `guess`: repeats of all settings; None: over 30.
    """

    noise: str
    runs: int
    wrong: float
    decided: float
    leader_wrong: float
    left: float
    trials: float
    grid_wrong: float
    grid_decided: float
    guess: int | None


def measure(noise: str, draw: Draw, runs: int) -> Outcome:
    races, grids, drawn = [], [], []
    for run in range(runs):
        random = np.random.default_rng([run, 11])
        speed = speeds(random)
        drawn.append(Settings(speed, *draw(random, int(speed.argmax()))))
        races.append(race(drawn[-1]))
        grids.append(grid(drawn[-1]))

    def guesses_wrong(repeats: int) -> float:
        return float(np.mean([each.behind(int((each.speed + each.noise[:, :repeats].mean(axis=1)).argmax())) for each in drawn]))

    return Outcome(
        noise,
        runs,
        float(np.mean([one.wrong(each) for one, each in zip(races, drawn, strict=True)])),
        float(np.mean([one.decided for one in races])),
        float(np.mean([each.behind(one.leader) for one, each in zip(races, drawn, strict=True)])),
        float(np.mean([one.left for one in races])),
        float(np.mean([one.trials for one in races])),
        float(np.mean([one.wrong(each) for one, each in zip(grids, drawn, strict=True)])),
        float(np.mean([one.decided for one in grids])),
        next((n for n in REPEATS if guesses_wrong(n) <= RACE_CHANCE), None),
    )


def row(one: Outcome) -> str:
    shares = [f"{share:.1%}" for share in (one.wrong, one.decided, one.leader_wrong)]
    grid_shares = [f"{share:.1%}" for share in (one.grid_wrong, one.grid_decided)]
    guess = f"{_SHAPE[0] * one.guess:,}" if one.guess else f"more than {_SHAPE[0] * GRID:,}"
    cells = [one.noise, *shares, f"{one.left:.1f}", f"{one.trials:,.0f}", *grid_shares, guess]
    return f"| {' | '.join(cells)} |".replace("%", " %").replace("  %", " %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="races for each noise")
    parser.add_argument("--noise", action="append", choices=list(FAMILIES), help="only this one (repeat for more)")
    parser.add_argument("--markdown", action="store_true", help="the rows of docs/verdicts.md instead of JSON lines")
    options = parser.parse_args()
    for noise in options.noise or FAMILIES:
        began = time.time()
        outcome = measure(noise, FAMILIES[noise], options.runs)
        print(row(outcome) if options.markdown else json.dumps(asdict(outcome)), flush=True)
        print(f"{noise}: {time.time() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
