"""Which trials ran on one host, with one code, in one sitting; and that cells are compared within these alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.stats.verdict import Verdict
from tasks.analysis.judge_cells import APART, ONE_BESIDE, ONE_IN_COMMON, judge_best
from tasks.analysis.stretches import PAUSE_S, numbers_of, stretches
from tasks.analysis.trial_row import TrialRow
from tests.tasks.cell_support import by_name, made, row, workers
from tests.tasks.host_support import at, spread_over_hosts


def ran(started_at: float, *, commit: str | None = None, **environment: str) -> TrialRow:
    one = at(row(workers(0), environment=environment), started_at)
    return replace(one, trial=one.trial.model_copy(update={"commit": commit}))


@pytest.mark.parametrize(
    ("trials", "numbers"),
    [
        ([ran(0.0), ran(20.0)], [0, 0]),
        ([ran(0.0, host_id="x"), ran(20.0, host_id="y"), ran(40.0, host_id="x")], [0, 1, 0]),
        ([ran(0.0, host="x"), ran(20.0, host="y")], [0, 1]),
        ([ran(0.0, host="x", host_id="1"), ran(20.0, host="y", host_id="1")], [0, 0]),
        ([ran(0.0), ran(10.0 + PAUSE_S)], [0, 0]),
        ([ran(0.0), ran(10.1 + PAUSE_S)], [0, 1]),
        ([ran(10.1 + PAUSE_S), ran(0.0)], [1, 0]),
        ([at(ran(0.0), 0.0, 300.0), ran(20.0), ran(300.0 + PAUSE_S)], [0, 0, 0]),
        ([at(ran(0.0), 0.0, 300.0), ran(20.0), ran(300.1 + PAUSE_S)], [0, 0, 1]),
        ([ran(0.0, tree="t"), ran(20.0, tree="u"), ran(40.0, tree="u")], [0, 1, 1]),
        ([ran(0.0, tree="t"), ran(20.0, tree="u", commit="c"), ran(40.0, tree="t")], [0, 0, 0]),
        ([ran(0.0, tree="t"), ran(20.0, tree="u", commit="c"), ran(40.0, tree="v", commit="c")], [0, 0, 1]),
    ],
    ids=[
        "one",
        "hosts",
        "hosts by name",
        "ids before names",
        "short pause",
        "pause",
        "any order",
        "short pause after the longer of two at once",
        "pause after it",
        "code",
        "commits",
        "code of a commit",
    ],
)
def test_trials_are_told_apart_by_host_pause_and_code(trials: list[TrialRow], numbers: list[int]) -> None:
    assert numbers_of(trials) == numbers
    assert [len(one.rows) for one in stretches(trials)] == [numbers.count(number) for number in sorted(set(numbers))]


@pytest.mark.parametrize("words", [("aab", "abb"), ("aaab", "aabb", "abbb"), ("aaaa", "aabb", "bbbb"), ("aabb-", "aabbb", "abbbb")])
def test_equal_cells_spread_unevenly_over_two_hosts_are_not_called_faster(words: tuple[str, ...]) -> None:
    cells = made(spread_over_hosts(words))
    assert {cell.verdict for cell in cells[1:]} <= {Verdict.SAME, Verdict.UNDECIDED}
    for cell in cells[1:]:
        assert cell.speedup is not None and abs(math.log(cell.speedup.value)) < 0.004, "not the 1 % and more by which their means differ"


def test_cells_that_differ_are_still_told_apart_beside_an_uneven_spread() -> None:
    cells = made(spread_over_hosts(["aaaabb", "aabbbb"], rates=[100.0, 105.0]))
    assert cells[1].verdict is Verdict.FASTER and cells[1].speedup is not None
    assert cells[1].speedup.value == pytest.approx(1.05, rel=0.003), "their means differ by 6 %"


def test_hosts_that_two_cells_ran_on_equally_often_are_no_difference_between_them() -> None:
    assert [cell.differs for cell in made(spread_over_hosts(["abab", "baba"]))] == [[], []]
    assert made(spread_over_hosts(["aabb", "abbb"]))[1].differs == ["host_id"]


def test_a_cell_on_one_host_and_its_baseline_on_the_other_are_not_compared() -> None:
    cells = made(spread_over_hosts(["aaa", "bbb"]))
    assert (cells[1].verdict, cells[1].why_undecided) == (Verdict.UNDECIDED, APART)
    assert cells[1].speedup is not None and math.isinf(cells[1].speedup.high)
    [found] = judge_best(cells[1], [cells[0]])
    assert (found.verdict, found.why_undecided) == (Verdict.UNDECIDED, APART), "neither is it the fastest"


def test_one_pair_on_one_host_is_one_trial_however_many_ran_elsewhere() -> None:
    cells = made(spread_over_hosts(["aaaa", "abbb"]))
    assert (cells[1].verdict, cells[1].why_undecided) == (Verdict.UNDECIDED, ONE_BESIDE)
    cells = made(spread_over_hosts(["aa-b", "-aa-"]))
    assert (cells[1].verdict, cells[1].why_undecided) == (Verdict.UNDECIDED, ONE_IN_COMMON), "two of each on that host, in one common round"


def test_a_sweep_that_went_on_a_day_later_on_its_host_is_two_sittings() -> None:
    """As on two hosts: the host may have another clock, or another neighbour, on another day."""
    rows = [replace(one, environment={"host_id": "one"}) for one in spread_over_hosts(["aab", "abb"])]
    cells = by_name(made(rows))
    assert cells["cpu · MP-1"].speedup is not None and cells["cpu · MP-1"].speedup.value < 1.002
    together = by_name(made([at(one, 20.0 * place) for place, one in enumerate(rows)]))
    assert together["cpu · MP-1"].speedup is not None and together["cpu · MP-1"].speedup.value > 1.008, (
        "what a day's difference would feign"
    )
