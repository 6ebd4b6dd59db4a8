"""A race, from its plan and its trials alone: who left it after which round and why, who leads, and whether that is decided.

Nothing is kept between rounds: a resumed sweep, and its report, find the same again. After each round, in this order, a setting drops out

1. whose trial did not fit, is not supported, diverged, hung or crashed, or has no value of a metric that the race needs;
2. that surely breaks a limit, by its own trials;
3. whose loss is struck, with `--parity`, once as many rounds ran as its reference has seeds;
4. that is surely behind one that surely keeps all limits (experiments/stats/race.py).

A setting of which it is open whether it keeps a limit stays, drops no other and cannot win. The chance of error is shared equally by the
race and the limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from experiments.metric import Metric, Scale
from experiments.metrics import metric_of
from experiments.stats.estimate import Array
from experiments.stats.loss_parity import ParityStatus
from experiments.stats.race import FIRST_LOOK, Mask, Standing, bounds, standing
from experiments.trial import Trial
from tasks.analysis.cell import is_number
from tasks.analysis.compare_cells import make_cells
from tasks.analysis.stretches import numbers_of
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.constraints import Constraint
from tasks.sweep.race_settings import RaceSettings
from tasks.sweep.store import Plan


class Why(StrEnum):
    """Why a setting left the race."""

    ENDED = "ended"  # its trial did not end ok
    NO_VALUE = "no value"
    LIMIT = "limit"
    STRUCK = "struck"
    BEHIND = "behind"
    AGAIN = "measured again"  # what dropped it then was measured anew since, and would not now


class State(StrEnum):
    """Where a race stands."""

    WON = "won"
    LEVEL = "level"  # the leader is surely less than the smallest effect behind each that is left
    NOBODY = "nobody"  # all have dropped out
    OPEN = "open"


@dataclass(frozen=True)
class Dropout:
    """A setting that left after a round. `what`: of ENDED the outcome, of NO_VALUE the metric, of LIMIT the limit, of BEHIND nothing;
    `reason`: of ENDED the trial's. `ratio`: of BEHIND, how many times better the leader was, with the ends of its interval."""

    racer: int
    round: int
    why: Why
    what: str = ""
    reason: str = ""
    ratio: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Round:
    """After a round: `before` and `after`, who was in the race, masks (racers,); `standing` in logarithms, of those before."""

    number: int
    before: Mask
    after: Mask
    standing: Standing


@dataclass(frozen=True)
class Race:
    """`trials`: one of each setting, whose place in it is the racer's number. `inside`: those that surely keep all limits, (racers,).

    `open_limits`: racer -> the limits of which it is not known whether it keeps them, of those left. `parity`: racer -> its status, with
    `--parity`, once judged. `trial_count`: what ran, without references; `rounds`: those of which each trial ended.
    """

    settings: RaceSettings
    trials: Sequence[Trial]
    rounds: Sequence[Round]
    dropouts: Sequence[Dropout]
    inside: Mask
    open_limits: Mapping[int, Sequence[Constraint]]
    parity: Mapping[int, ParityStatus] = field(default_factory=dict)
    trial_count: int = 0

    @property
    def metric(self) -> Metric:
        return metric_of(self.settings.metric)

    @property
    def left(self) -> list[int]:
        """Racers that have not dropped out."""
        return [int(racer) for racer in np.flatnonzero(self._after)]

    @cached_property
    def _after(self) -> Mask:
        return self.rounds[-1].after if self.rounds else np.ones(len(self.trials), bool)

    @property
    def leader(self) -> int | None:
        """The racer with the best mean of those that may win; None where no one can be judged."""
        left = self.left
        if len(left) == 1 and self.rounds and self.rounds[-1].number >= FIRST_LOOK and self.inside[left[0]]:
            return left[0]
        ahead = self.rounds[-1].standing.leader if self.rounds else -1
        return ahead if ahead in left else None

    @property
    def state(self) -> State:
        """With `--parity` nothing is decided before losses have been judged."""
        left = self.left
        if not left:
            return State.NOBODY
        if self.leader is None or self.rounds[-1].number < self.settings.seeds:
            return State.OPEN
        if len(left) == 1:
            return State.WON
        return State.LEVEL if self.rounds[-1].standing.within(self._after, math.log1p(self.settings.minimum)) else State.OPEN

    def level_with(self, leader: int) -> list[int]:
        """The others that are left, best first."""
        behind = self.rounds[-1].standing.behind
        return sorted(
            (racer for racer in self.left if racer != leader), key=lambda racer: float(np.nan_to_num(behind[racer], nan=math.inf))
        )


def race_of(plan: Plan, rows: Sequence[TrialRow]) -> Race:
    """The race after its last whole round. `rows`: the sweep's. Raises ValueError for a plan without a race."""
    settings = plan.race
    if settings is None:
        raise ValueError(f"{plan.sweep_id} is no race")
    return _Replay(plan, settings, rows).run()


class _Replay:
    """Goes through the rounds again, one by one."""

    def __init__(self, plan: Plan, settings: RaceSettings, rows: Sequence[TrialRow]) -> None:
        self.plan, self.settings, self.rows = plan, settings, rows
        first: dict[str, Trial] = {}
        for row in rows:
            if not row.trial.reference:
                first.setdefault(row.trial.cell, row.trial)
        self.trials = list(first.values())
        self.racer = {cell: number for number, cell in enumerate(first)}
        self.at = {(self.racer[row.trial.cell], row.trial.repeat): row for row in rows if row.trial.cell in self.racer}
        self.planned = max((number for _, number in self.at), default=0)
        self.stretch = self._stretches()
        self.racing = np.ones(len(self.trials), bool)
        self.inside = np.full(len(self.trials), not settings.where)
        self.open: dict[int, list[Constraint]] = {}
        self.parity: dict[int, ParityStatus] = {}
        self.dropouts: list[Dropout] = []
        self.chance = settings.chance / (1 + len(settings.where))

    def run(self) -> Race:
        rounds = []
        for number in range(1, self.planned + 1):
            if not self.racing.any() or not self._whole(number):
                break
            rounds.append(self._judge(number))
        count = sum(row.result is not None for row in self.at.values())
        return Race(self.settings, self.trials, rounds, self.dropouts, self.inside, self.open, self.parity, count)

    def _whole(self, number: int) -> bool:
        """Whether each trial of the round has ended, if only by what is no fault of its own."""
        mine = [self.at.get((int(racer), number)) for racer in np.flatnonzero(self.racing)]
        return all(row is not None and row.outcome not in ("to do", "cancelled") for row in mine)

    def _judge(self, number: int) -> Round:
        before = self.racing.copy()
        found = [*self._ended(number)]
        found += self._beyond_limits(number, without=found)
        found += self._struck(number, without=found)
        still = self._still(found)
        now = standing(self._logs(number), still, able=self.inside, chance=self.chance)
        for racer in np.flatnonzero(now.dropped):
            ends = tuple(math.exp(min(700.0, float(end[racer]))) for end in (now.behind, now.low, now.high))
            found.append(Dropout(int(racer), number, Why.BEHIND, ratio=(ends[0], ends[1], ends[2])))
        self._leave(number, found)
        return Round(number, before, self.racing.copy(), now)

    def _leave(self, number: int, found: Sequence[Dropout]) -> None:
        """Take those out that drop now. Where the next round is planned already, that is what was decided then."""
        by_racer = {one.racer: one for one in found}
        going_on = {racer for racer, at in self.at if at == number + 1}
        for racer in map(int, np.flatnonzero(self.racing)):
            why = by_racer.get(racer)
            serves = self.trials[racer].cell in self.settings.references and number < self.settings.seeds
            if number < self.planned and not serves:
                why = None if racer in going_on else why or Dropout(racer, number, Why.AGAIN)
            if why is not None:
                self.racing[racer] = False
                self.dropouts.append(why)
                self.open.pop(racer, None)

    def _still(self, found: Sequence[Dropout]) -> Mask:
        still = self.racing.copy()
        still[[one.racer for one in found]] = False
        return still

    def _ended(self, number: int) -> list[Dropout]:
        """Those that ended otherwise than ok, or without a metric that the race needs; not what was lost to the infrastructure, or
        cannot be read."""
        found = []
        for racer in map(int, np.flatnonzero(self.racing)):
            row = self.at[racer, number]
            if row.outcome == "ok":
                lacking = next((name for name in self._needed() if _value(row, name) is None), None)
                if lacking is not None:
                    found.append(Dropout(racer, number, Why.NO_VALUE, what=lacking))
            elif row.outcome not in ("infra", "unreadable"):
                found.append(Dropout(racer, number, Why.ENDED, what=row.outcome, reason=row.reason or ""))
        return found

    def _needed(self) -> list[str]:
        return list(dict.fromkeys([self.settings.metric, *(limit.metric for limit in self.settings.where)]))

    def _beyond_limits(self, number: int, *, without: Sequence[Dropout]) -> list[Dropout]:
        """Those that surely break a limit; says of the others which they surely keep."""
        still = self._still(without)
        if number < FIRST_LOOK or not self.settings.where or not still.any():
            return []
        self.inside = still.copy()
        self.open = {}
        found: dict[int, Dropout] = {}
        for limit in self.settings.where:
            logarithmic = metric_of(limit.metric).scale is Scale.LOG
            edge = math.log(limit.limit) if logarithmic else limit.limit
            low, high = bounds(self._values(limit.metric, number, logarithmic=logarithmic), int(still.sum()), chance=self.chance)
            keeps, breaks = (high <= edge, low > edge) if limit.sign == "<=" else (low >= edge, high < edge)
            self.inside &= keeps
            for racer in map(int, np.flatnonzero(still & ~keeps)):
                self.open.setdefault(racer, []).append(limit)
            for racer in map(int, np.flatnonzero(still & breaks)):
                found.setdefault(racer, Dropout(racer, number, Why.LIMIT, what=limit.text))
        return list(found.values())

    def _struck(self, number: int, *, without: Sequence[Dropout]) -> list[Dropout]:
        """Those whose loss differs from their reference's, judged once: with as many rounds as references have seeds."""
        if not self.settings.parity or number != self.settings.seeds:
            return []
        rows = [row for row in self.rows if row.trial.repeat <= number]
        emulated = bool(rows) and all(row.emulated for row in rows)
        for cell in make_cells(rows, self.plan.suite, emulated=emulated):
            if cell.parity is not None and cell.trial.cell in self.racer:
                self.parity[self.racer[cell.trial.cell]] = cell.parity.status
        still = self._still(without)
        return [Dropout(at, number, Why.STRUCK) for at, status in self.parity.items() if status is ParityStatus.STRUCK and still[at]]

    def _logs(self, number: int) -> Array:
        """(racers, blocks): a round, or each part of it that one stretch of the sweep has. What went on elsewhere, or later, is not
        compared with what ran before. More blocks than rounds make the levels stricter."""
        values = self.settings.better * self._values(self.settings.metric, number, logarithmic=True)
        blocks = []
        for at in range(number):
            of, there = self.stretch[:, at], self.stretch[:, at] >= 0
            blocks += [np.where(of == one, values[:, at], np.nan) for one in (np.unique(of[there]) if there.any() else (-1,))]
        return np.column_stack(blocks)

    def _stretches(self) -> NDArray[np.int_]:
        """(racers, rounds): the number of each trial's stretch among those of its pool; -1 where there is no trial."""
        numbers = np.full((len(self.trials), self.planned), -1)
        for pool in {trial.pool for trial in self.trials}:
            mine = {place: row for place, row in self.at.items() if row.trial.pool == pool}
            for (racer, number), stretch in zip(mine, numbers_of(list(mine.values())), strict=True):
                numbers[racer, number - 1] = stretch
        return numbers

    def _values(self, name: str, last: int, *, logarithmic: bool) -> Array:
        """(racers, rounds) to round `last`; NaN where there is none, and for disturbed trials of a racer that has others.

        As in a cell, what else ran changes nothing of a metric that depends on the seed.
        """
        touched = not metric_of(name).depends_on_seed
        values, disturbed = np.full((len(self.trials), last), np.nan), np.zeros((len(self.trials), last), bool)
        for (racer, number), row in self.at.items():
            value = _value(row, name) if number <= last and row.outcome == "ok" else None
            if value is not None:
                values[racer, number - 1] = math.log(value) if logarithmic else value
                disturbed[racer, number - 1] = touched and bool(row.disturbed)
        others = (np.isfinite(values) & ~disturbed).any(axis=1)
        return np.where(disturbed & others[:, None], np.nan, values)


def _value(row: TrialRow, name: str) -> float | None:
    """The trial's value of a metric; None where it has none, or one of 0 or less of what is always more."""
    value = row.summary.get(name)
    if not is_number(value) or value is None or (value <= 0 and metric_of(name).scale is Scale.LOG):
        return None
    return float(value)
