"""Sweeps with a budget of time: rounds in turns, A B C C B A, until all comparisons are decided or no other round fits.

After each round from the `least`-th on the comparisons are looked at. The plan holds each look and what of the chance of error it may use
(experiments/stats/interim_levels.py) before it is made; tasks/analysis/looks.py finds from plan and results what it said. Without
`until_decided` there is one look, when no other round fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from experiments.stats.interim_levels import next_look
from experiments.trial import Trial
from tasks.analysis.cell import Cell
from tasks.analysis.looks import undecided_of
from tasks.analysis.results import Sweep, load_sweep
from tasks.analysis.round_cells import running_cells
from tasks.analysis.row_times import row_times
from tasks.report.text_format import listed
from tasks.sweep.plan import once_more
from tasks.sweep.round_time import TrialTimes
from tasks.sweep.store import DecideSettings, Plan, SweepStore


def one_more_round(store: SweepStore, plan: Plan, now_s: float) -> Plan | None:
    """The plan with another round or, before one is chosen, with the look that says for which cells. None where it is complete.

    `now_s`: for how long the sweep's trials have run, s. A round starts only where all of it is expected to fit in what is left of the
    budget, by what trials took here. Cells of which no trial ended ok, such as those that do not fit, or whose last two did not, get no
    more. Raises StoreError, ResultsError.
    """
    settings = plan.decide
    if settings is None:
        return None
    state = _State(replace(load_sweep(store.dir), plan=plan), settings, settings.budget_s - now_s)
    if state.round < settings.least:
        return state.extended(state.running())
    looked = bool(settings.looks) and settings.looks[-1].round >= state.round  # later: a publication cut a round that was lost
    if looked:
        return state.extended(state.wanted())
    fit = state.fit(state.wanted())
    if fit and not settings.until_decided:
        return state.extended(state.running())
    look = next_look(settings.looks, state.round, state.round + fit)
    return plan.model_copy(update={"decide": settings.model_copy(update={"looks": [*settings.looks, look]})})


def round_of(plan: Plan, cells: Sequence[str]) -> list[Trial]:
    """Another round of these cells, by their hashes, in the order of the plan's first round or its reverse, by turns."""
    first: dict[str, Trial] = {}
    for trial in plan.trials:
        first.setdefault(trial.cell, trial)
    number = plan.last_round + 1
    chosen = [trial for trial in sorted(first.values(), key=lambda trial: trial.index) if trial.cell in set(cells)]
    seeds = plan.suite.repeats_are_seeds
    return [
        once_more(trial, number, len(plan.trials) + place, seed=int(trial.parameters["seed"]) + number - trial.repeat if seeds else None)
        for place, trial in enumerate(chosen if number % 2 else reversed(chosen))
    ]


@dataclass(frozen=True)
class _State:
    """A sweep between two rounds; `left_s` of its budget is left."""

    sweep: Sweep
    settings: DecideSettings
    left_s: float

    @property
    def plan(self) -> Plan:
        return self.sweep.plan

    @property
    def round(self) -> int:
        return self.plan.last_round

    @property
    def times(self) -> TrialTimes:
        return row_times(self.sweep.rows)

    def running(self) -> list[str]:
        """See `running_cells`."""
        return running_cells(self.plan, self.sweep.rows, self.round)

    @cached_property
    def undecided(self) -> list[Cell]:
        """By the looks so far."""
        return undecided_of(self.sweep)

    def wanted(self) -> list[str]:
        """The cells of the next round: all that run or, with `until_decided`, those that are undecided and their baselines."""
        running = self.running()
        if not self.settings.until_decided:
            return running
        both = [one.trial.cell for cell in self.undecided for one in (cell, cell.baseline) if one is not None]
        return [cell for cell in running if cell in both]

    def fit(self, cells: Sequence[str]) -> int:
        """How many more rounds of these cells there is time for, and room in the plan."""
        trials = round_of(self.plan, cells)
        took = self.times.of_round(trials)
        if not trials or not took:
            return 0
        room = (self.plan.suite.limit - len(self.plan.trials)) // len(trials)
        return max(0, min(int(self.left_s / took), room, self.settings.most - self.round))

    def extended(self, cells: Sequence[str]) -> Plan | None:
        """The plan with another round of these cells; None where it does not fit, or there are none."""
        fit = self.fit(cells)
        if not fit:
            return None
        names = [cell.name for cell in self.undecided] if self.settings.until_decided and self.settings.looks else []
        settings = self.settings.model_copy(update={"undecided": names, "expected_rounds": self.round + fit})
        more = round_of(self.plan, cells)
        keys = {trial.key for trial in more}  # of a round for which there was no time before, and is now
        cut = [trial for trial in self.plan.cut if trial.key not in keys]
        return self.plan.model_copy(update={"trials": [*self.plan.trials, *more], "cut": cut, "decide": settings})


def decide_note(plan: Plan) -> str:
    """The round that runs, of how many, and what is undecided: `round 4 of up to 8, undecided: bf16 · MP-1`."""
    assert plan.decide is not None
    most = f" of up to {plan.decide.expected_rounds}" if plan.decide.expected_rounds else ""
    names = plan.decide.undecided
    return f"round {plan.last_round}{most}{f', undecided: {listed(names, 3)}' if names else ''}"
