"""Verdicts on cells: the best of many, fewer trials than decide, and how seldom equal cells are told apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.stats.estimate import LEVEL, estimate_from_log, t_value
from experiments.stats.verdict import DISCOVERY, Verdict, among_many
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import LEFT_OPEN, OF_MANY, SPREADS_DIFFER, TOO_WIDE, judge_best, judge_pairs, judge_ratios, ratio_of
from tasks.analysis.looks import NOT_LOOKED
from tests.tasks.cell_support import made, repeats, row, steady, workers

PATTERN = ((0.01, 0.0, -0.01), (-0.01, 0.01, 0.0), (0.0, -0.01, 0.01))  # rounds add up to 0


def ahead(lead: float, others: int) -> list[Cell]:
    """A cell that is ahead of equal ones."""
    rates = [100 * lead, *[100.0] * others]
    return made([one for count, rate in enumerate(rates) for one in repeats(workers(count), rate, PATTERN[count % 3])])


def test_the_best_of_more_cells_needs_a_larger_lead() -> None:
    """p is 0.004 against the cell beside it: enough for the baseline it was compared with, not for the best of sixteen."""
    best, other, *rest = ahead(1.052, 15)
    ratio = ratio_of(best, other)
    assert 0.003 < ratio.p_value < 0.005 and among_many(ratio, 16) > 0.025
    assert [found.verdict for found in judge_pairs([(best, other)])] == [Verdict.FASTER]
    said = judge_best(best, [other, *rest])[0]
    assert (said.ratio, said.verdict, said.why_undecided) == (ratio, Verdict.UNDECIDED, "one of many comparisons")
    few, beside = ahead(1.052, 1)
    assert judge_best(few, [beside])[0].why_undecided == judge_pairs([(few, beside)])[0].why_undecided, "one pair was not picked"
    clear, *others = ahead(1.2, 15)
    assert {found.verdict for found in judge_best(clear, others)} == {Verdict.FASTER}


def test_the_best_was_picked_from_itself_and_the_others() -> None:
    """Of eight cells, at a lead that would be decided among seven."""
    best, *others = ahead(1.0525, 7)
    ratio = ratio_of(best, others[0])
    assert among_many(ratio, 7) < DISCOVERY < among_many(ratio, 8)
    assert judge_best(best, others)[0].why_undecided == OF_MANY


@pytest.mark.parametrize(
    ("word", "why", "said"),
    [
        (Verdict.FASTER, None, (Verdict.FASTER, None)),
        (Verdict.UNDECIDED, TOO_WIDE, (Verdict.UNDECIDED, LEFT_OPEN)),
        (Verdict.UNDECIDED, OF_MANY, (Verdict.UNDECIDED, LEFT_OPEN)),
        (Verdict.UNDECIDED, SPREADS_DIFFER, (Verdict.UNDECIDED, SPREADS_DIFFER)),
    ],
)
def test_the_best_of_a_group_is_ahead_of_its_baseline_only_if_the_table_leaves_that_not_open(
    word: Verdict, why: str | None, said: tuple[Verdict, str | None]
) -> None:
    """The table has the comparisons of all groups, and is the stricter for it: a pair has one verdict on a page."""
    base, best, other = made([one for count, rate in enumerate((100.0, 120.0, 80.0)) for one in repeats(workers(count), rate)])
    assert best.baseline is base and best.verdict is Verdict.FASTER
    best.verdict, best.why_undecided = word, why
    of_base, of_other = judge_best(best, [base, other])
    assert (of_base.verdict, of_base.why_undecided) == said and of_base.ratio == best.speedup
    assert of_other.verdict is Verdict.FASTER, "which the table does not compare with it"


def test_nor_is_the_best_the_slower_one_or_the_same_where_the_table_leaves_that_open() -> None:
    """Else a cell of a lower value would take its place by a comparison that the table calls undecided."""
    base, fast, same = made([one for count, rate in enumerate((100.0, 120.0, 100.1)) for one in repeats(workers(count), rate)])
    assert [one.verdict for one in judge_best(base, [fast, same])] == [Verdict.SLOWER, Verdict.SAME]
    fast.verdict, fast.why_undecided = Verdict.UNDECIDED, OF_MANY
    same.verdict, same.why_undecided = Verdict.UNDECIDED, NOT_LOOKED
    assert [(one.verdict, one.why_undecided) for one in judge_best(base, [fast, same])] == [
        (Verdict.UNDECIDED, LEFT_OPEN),
        (Verdict.UNDECIDED, NOT_LOOKED),
    ]
    assert judge_best(fast, [same])[0].verdict is Verdict.FASTER, "a pair that the table does not have"


def test_what_earlier_looks_decided_counts_among_the_tables_discoveries() -> None:
    """Six comparisons of which one has p = 0.0045: q is six times that. Beside six that were decided it is the seventh of twelve."""
    base, *others = made([one for count in range(7) for one in repeats(workers(count), 100.0, PATTERN[count % 3])])
    pairs = [(cell, base) for cell in others]
    se = math.log(1.05) / t_value(1 - 0.0045, 4)
    ratios = [estimate_from_log(math.log(1.05), se, 4, 3, LEVEL), *[estimate_from_log(0.0, se, 4, 3, LEVEL)] * 5]
    alone, beside = judge_ratios(pairs, ratios)[0], judge_ratios(pairs, ratios, decided=[1e-9] * 6)[0]
    assert (alone.verdict, alone.why_undecided) == (Verdict.UNDECIDED, OF_MANY)
    assert beside.verdict is Verdict.FASTER


def test_the_best_is_not_told_apart_by_single_trials() -> None:
    one, two, alone = made([*steady(workers(0), 200.0), *steady(workers(1), 100.0), row(workers(2), 50.0)])
    decided, undecided = judge_best(one, [two, alone])
    assert (decided.verdict, decided.why_undecided) == (Verdict.FASTER, None)
    assert (undecided.verdict, undecided.why_undecided) == (Verdict.UNDECIDED, "one trial")
    assert undecided.ratio.value == pytest.approx(4.0)


def test_an_interval_too_wide_says_so() -> None:
    base, noisy = made([*repeats(workers(0), 100.0, PATTERN[0]), *repeats(workers(1), 101.0, PATTERN[1])])
    assert judge_pairs([(noisy, base)])[0].why_undecided == "too wide an interval"


@pytest.mark.parametrize("baseline_sd", [0.01, 0.1])
def test_equal_cells_are_seldom_told_apart(baseline_sd: float) -> None:
    """100 tables of five cells with three repeats each, of which 5 at most are promised."""
    random, tables, found = np.random.default_rng(11), 0, 0
    for _ in range(100):
        noise = random.normal(size=(5, 3)) * np.array([baseline_sd, *[0.01] * 4])[:, None]
        cells = made([one for count in range(5) for one in repeats(workers(count), 100.0, noise[count])])
        verdicts = [cell.verdict for cell in cells if cell.verdict]
        found += any(word in (Verdict.FASTER, Verdict.SLOWER) for word in verdicts)
        best = max(cells, key=lambda cell: cell.estimate.value if cell.estimate else 0.0)
        tables += any(one.verdict is Verdict.FASTER for one in judge_best(best, [cell for cell in cells if cell is not best]))
    assert found <= 4 and tables <= 4


@pytest.mark.parametrize(
    ("logs", "verdict", "why"),
    [
        ((-0.001, 0.001), Verdict.FASTER, None),
        ((-0.006, 0.006), Verdict.UNDECIDED, SPREADS_DIFFER),
        ((-0.02, 0.0, 0.02), Verdict.UNDECIDED, SPREADS_DIFFER),
    ],
)
def test_two_trials_of_cells_of_two_sweeps_do_not_decide_where_their_spreads_differ(
    logs: tuple[float, ...], verdict: Verdict, why: str | None
) -> None:
    [quiet] = made(repeats(workers(0), 100.0, (-0.001, 0.001)))
    [cell] = made(repeats(workers(0), 200.0, logs))
    assert cell.layout is not quiet.layout
    [found] = judge_pairs([(cell, quiet)])
    assert (found.verdict, found.why_undecided) == (verdict, why)


def test_three_trials_of_cells_of_two_sweeps_decide_whatever_their_spreads() -> None:
    [quiet] = made(repeats(workers(0), 100.0, (-0.001, 0.0, 0.001)))
    [cell] = made(repeats(workers(0), 200.0, (-0.006, 0.0, 0.006)))
    assert judge_pairs([(cell, quiet)])[0].verdict is Verdict.FASTER
