"""Verdicts by looks: they belong to the look at which they fell, whatever was measured since."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.stats.estimate import LEVEL
from experiments.stats.interim_levels import look_levels
from experiments.stats.interim_looks import Look
from experiments.stats.verdict import Verdict
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import Comparison, judge_best, judge_pairs, ratio_of, told_ratio
from tasks.analysis.looks import NOT_LOOKED, cells_of_plan, rows_at, undecided_cells
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.store import DecideSettings
from tests.tasks.cell_support import make_plan, repeats, settings, workers
from tests.tasks.fake_sweep import as_suite

LOOKS = [Look(round=3, spent=0.2), Look(round=4, spent=0.4), Look(round=5, spent=0.75)]
QUIET = (0.001, -0.001, 0.0005, -0.0005, 0.0)
NOISY = (0.05, -0.05, 0.03, -0.04, 0.02)


def at_times(rows: list[TrialRow]) -> list[TrialRow]:
    """Rounds one after the other, 10 s each."""
    return [
        replace(
            row, result=row.result.model_copy(update={"started_at": 10.0 * row.trial.repeat, "finished_at": 10.0 * row.trial.repeat + 9})
        )
        for row in rows
        if row.result is not None
    ]


def judged(looks: list[Look], *, rounds: int = 5, fast: float = 130.0) -> list[Cell]:
    rows = repeats(workers(0), 100.0, QUIET[:rounds]) + repeats(workers(1), fast, QUIET[::-1][:rounds])
    rows += repeats(workers(2), 101.0, NOISY[:rounds])
    plan = make_plan([row.trial for row in rows], suite=as_suite(settings()), decide=DecideSettings(budget_s=60.0, looks=looks))
    return cells_of_plan(at_times(rows), plan)


def test_a_verdict_is_of_the_look_that_decided_it_with_that_looks_interval() -> None:
    base, fast, noisy = judged(LOOKS)
    assert (fast.verdict, fast.decided_after) == (Verdict.FASTER, 3)
    assert (noisy.verdict, noisy.decided_after, noisy.why_undecided) == (Verdict.UNDECIDED, None, "too wide an interval")
    alone = judged(LOOKS[:1], rounds=3)[1]
    assert fast.speedup == alone.speedup, "later rounds change nothing"
    assert fast.speedup is not None and noisy.speedup is not None and fast.speedup.n == 3 and noisy.speedup.n == 5
    levels = look_levels(LOOKS, 1 - LEVEL)
    assert fast.speedup == fast.speedup.at(1 - levels[0]) and noisy.speedup == noisy.speedup.at(1 - levels[2])
    assert math.log(fast.speedup.high / fast.speedup.low) > math.log((wide := fast.speedup.at(LEVEL)).high / wide.low)
    assert undecided_cells([base, fast, noisy]) == [noisy]


def test_a_pair_has_one_ratio_and_one_verdict_wherever_it_is_told() -> None:
    base, fast, noisy = judged(LOOKS)
    assert fast.speedup is not None and noisy.speedup is not None
    assert ratio_of(fast, base) != fast.speedup.at(LEVEL), "two more rounds say something else"
    assert told_ratio(fast, base) == fast.speedup and told_ratio(base, fast) == fast.speedup.inverse()
    assert judge_best(fast, [base, noisy])[0].ratio == fast.speedup
    assert judge_pairs([(fast, base)]) == [Comparison(fast.speedup, Verdict.FASTER)]
    assert judge_pairs([(base, fast)]) == [Comparison(fast.speedup.inverse(), Verdict.SLOWER)]
    assert judge_pairs([(base, noisy)]) == [Comparison(noisy.speedup.inverse(), Verdict.UNDECIDED, "too wide an interval")]
    of_both = ratio_of(fast, noisy).at(1 - look_levels(LOOKS, 1 - LEVEL)[0])
    assert told_ratio(fast, noisy) == of_both == judge_best(fast, [base, noisy])[1].ratio, "the stricter look's level"


def test_before_the_first_look_nothing_is_decided() -> None:
    _, fast, noisy = judged([])
    assert {(cell.verdict, cell.why_undecided) for cell in (fast, noisy)} == {(Verdict.UNDECIDED, NOT_LOOKED)}


def test_a_look_did_not_see_a_trial_that_ran_again_later() -> None:
    rows = at_times(repeats(workers(0), 100.0, QUIET[:4]))
    assert [row.trial.repeat for row in rows_at(rows, 3)] == [1, 2, 3]
    assert rows[1].result is not None
    rows[1] = replace(rows[1], result=rows[1].result.model_copy(update={"started_at": 49.0, "finished_at": 55.0}))
    assert [row.trial.repeat for row in rows_at(rows, 3)] == [1, 3]
    assert [row.trial.repeat for row in rows_at(rows, 4)] == [1, 2, 3, 4]


def test_without_a_budget_cells_are_judged_once() -> None:
    rows = at_times(repeats(workers(0), 100.0) + repeats(workers(1), 130.0))
    _, fast = cells_of_plan(rows, make_plan([row.trial for row in rows], suite=as_suite(settings())))
    assert (fast.verdict, fast.decided_after) == (Verdict.FASTER, None)
    assert fast.speedup is not None and fast.speedup.high == pytest.approx(fast.speedup.at(LEVEL).high)
