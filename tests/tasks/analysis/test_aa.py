"""What the pairs of an A/A sweep show of intervals and verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.device_state import DeviceState
from experiments.stats.coverage import Share
from experiments.stats.estimate import estimate_from_log
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.aa import APART_S, analyse, by_the_report, pairs_of
from tasks.report.certificate_text import judged
from tests.tasks.aa_support import aa_suite, ended, known_t, noise, pair_rows, twin_row


def result_of(a: list[float], b: list[float], compare: Any = None, **more: Any) -> Any:
    found = analyse(pair_rows(a, b, **more), aa_suite(), compare)
    assert found is not None
    return found


# --- coverage


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_right_intervals_cover_as_often_as_they_claim(outliers: float) -> None:
    result = result_of(*noise(200, outliers=outliers), known_t())
    assert (result.pairs, result.single.of) == (200, 200)
    low, high = result.single.interval
    assert low < 0.95 < high, result.single
    assert [(group.size, group.covered.of) for group in result.groups] == [(2, 100), (3, 66), (5, 40)]
    assert all(group.covered.interval[1] > 0.95 for group in result.groups)
    assert judged(result.single) == ""


def test_intervals_half_as_wide_are_found_out_and_the_line_says_so() -> None:
    result = result_of(*noise(200), known_t(0.5))
    assert result.single.value < 0.8
    assert result.single.interval[1] < 0.95
    assert judged(result.single) == ", too narrow"
    assert result.group(3).false_verdicts.hits == result.group(3).covered.of - result.group(3).covered.hits > 0


def test_intervals_twice_as_wide_are_found_out_too() -> None:
    result = result_of(*noise(200), known_t(2))
    assert result.single.value > 0.99
    assert judged(result.single) == ", wider than need be"


def test_the_report_itself_covers_groups_of_three() -> None:
    """With the intervals and verdicts that a report gives."""
    result = result_of(*noise(120, sd=0.03, seed=2))
    group = result.group(3)
    assert group.covered.of == 40 and group.covered.interval[1] > 0.95
    assert group.false_verdicts.hits <= 2


def test_intervals_of_steps_alone_know_nothing_of_the_noise_between_trials() -> None:
    result = result_of(*noise(200, sd=0.02), known_t(), within=0.005)
    assert result.times_apart == pytest.approx(4, rel=0.1)
    assert result.steps.of == 200 and 0.25 < result.steps.value < 0.5  # 1.96 / 4 standard deviations: 38 %
    unknown = result_of(*noise(20), known_t(), within=None)
    assert (unknown.times_apart, unknown.steps) == (None, Share())


def test_each_pair_is_judged_by_the_spread_of_the_others() -> None:
    a, b = noise(10)
    seen: list[Spread | None] = []

    def compare(rows: Any, suite: Any, known: Spread | None) -> Any:
        seen.append(known)
        return known_t()(rows, suite, known)

    a[0] = 5.0  # far out: it must not widen its own interval
    result = result_of(a, b, compare)
    spreads = seen[:10]
    assert all(spread is not None and spread.df == 16 for spread in spreads) and seen[10:] == [None] * 10
    assert spreads[0].sd < 0.05 and all(spread.sd > 1 for spread in spreads[1:])  # type: ignore[union-attr]
    assert [one.covered for one in result.comparisons] == [False] + [True] * 9


def test_groups_are_of_consecutive_pairs_and_share_none() -> None:
    groups: list[list[int]] = []

    def compare(rows: Any, suite: Any, known: Spread | None) -> Any:
        if known is None:
            groups.append(sorted({row.trial.repeat for row in rows}))
            assert sorted(row.trial.axes["twin"] for row in rows) == ["A"] * (len(rows) // 2) + ["B"] * (len(rows) // 2)
        return estimate_from_log(0.1, 0.01, 4, 2, 0.95), Verdict.FASTER if len(rows) == 4 else Verdict.SAME

    result = result_of(*noise(6), compare)
    assert groups == [[1, 2], [3, 4], [5, 6], [1, 2, 3], [4, 5, 6], [1, 2, 3, 4, 5]]
    assert [group.false_verdicts for group in result.groups] == [Share(hits=3, of=3), Share(of=2), Share(of=1)]
    assert [group.covered for group in result.groups] == [Share(of=3), Share(of=2), Share(of=1)]


@pytest.mark.parametrize(("verdict", "hits"), [("faster", 1), ("slower", 1), ("same", 0), ("undecided", 0)])
def test_false_are_faster_and_slower(verdict: str, hits: int) -> None:
    result = result_of(*noise(2), lambda *_: (estimate_from_log(0.0, 0.01, 4, 2, 0.95), Verdict(verdict)))
    assert result.group(2).false_verdicts == Share(hits=hits, of=1)


def test_what_gets_no_interval_is_not_counted() -> None:
    result = result_of(*noise(6), lambda rows, suite, known: None)
    assert (result.single, result.comparisons) == (Share(), [])
    assert [group.covered.of for group in result.groups] == [0, 0, 0]


def test_two_pairs_say_nothing_of_each_other() -> None:
    result = result_of(*noise(2), known_t())
    assert (result.pairs, result.single, result.group(2).covered.of, result.group(3).covered.of) == (2, Share(), 1, 0)
    with pytest.raises(KeyError, match="no groups of 4"):
        result.group(4)


# --- which pairs count


def test_pairs_that_count_and_why_others_do_not() -> None:
    rows = pair_rows(*noise(6))
    rows[2] = twin_row("B", 2, outcome=Outcome.CRASHED)
    rows[4] = twin_row("A", 3, metric="step_time_median_s")
    rows[11] = twin_row("A", 6, outcome=None)
    whole = {pair.number: pair.left_out for pair in pairs_of(rows, "throughput")}
    assert whole == {1: None, 2: "ended as crashed", 3: "no throughput", 4: None, 5: None}
    result = analyse(rows, aa_suite(), known_t())
    assert result is not None and result.pairs == 3
    assert dict(result.left_out) == {"ended as crashed": 1, "no throughput": 1}
    assert {row.trial.repeat for row in result.rows} == {1, 4, 5}


def test_a_disturbed_pair_is_left_out() -> None:
    a, b = twin_row("A", 1), ended(twin_row("B", 1), 0, disturbed="another process on the GPU")
    assert [pair.left_out for pair in pairs_of([a, b], "throughput")] == ["disturbed"]


def test_a_pair_is_disturbed_where_its_samples_say_so_as_for_a_report() -> None:
    """Whatever the trial's own code made of them when it ended."""
    found = DeviceState(samples=100, coverage=1.0, disturbed="thermal slowdown in 12 % of the samples (limit 1 %)")
    a, b = replace(twin_row("A", 1), state=found), twin_row("B", 1)
    assert a.result is not None and a.result.disturbed is None
    assert [pair.left_out for pair in pairs_of([a, b], "throughput")] == ["disturbed"]


def test_a_pair_of_which_nothing_was_seen_is_left_out() -> None:
    a, b = twin_row("A", 1), twin_row("B", 1)
    short, unsampled = ended(b, 0.0, not_judged="the window was under 1 s"), twin_row("B", 1, summary={"settled": True})
    both = ended(short, 0.0, disturbed="another process on the GPU")
    found = [pairs_of([a, other], "throughput")[0].left_out for other in (b, short, unsampled, both)]
    assert found == [None, "not judged", "not judged", "disturbed"]
    rows = pair_rows(*noise(4))
    rows[3] = ended(rows[3], 0.0, not_judged="the window was under 1 s")
    result = analyse(rows, aa_suite(), known_t())
    assert result is not None and (result.pairs, dict(result.left_out), result.with_disturbed) == (3, {"not judged": 1}, None)


def test_what_disturbed_pairs_would_have_shown_is_told_beside() -> None:
    a, b = noise(30)
    b[3], b[17] = 1.0, -1.0
    rows = [ended(row, 0.0, disturbed="others") if row.trial.repeat in (4, 18) else row for row in pair_rows(a, b)]
    result = analyse(rows, aa_suite(), known_t())
    assert result is not None and (result.pairs, dict(result.left_out)) == (28, {"disturbed": 2})
    assert result.single.of == 28 and result.with_disturbed is not None and result.with_disturbed.of == 30
    assert result.with_disturbed.hits == 30 - 2, "two pairs far out, which widen the intervals of all others"
    assert result_of(a, b, known_t()).with_disturbed is None


@pytest.mark.parametrize(
    ("took", "gap", "left_out"),
    [(10, APART_S, None), (10, APART_S + 0.5, "interrupted"), (100, 100, None), (100, 100.5, "interrupted"), (10, -5, None)],
)
def test_the_trials_of_a_pair_are_neighbours_in_time(took: float, gap: float, left_out: str | None) -> None:
    second, first = ended(twin_row("A", 1), took + gap, 1.0), ended(twin_row("B", 1), 0.0, took)
    assert [pair.left_out for pair in pairs_of([second, first], "throughput")] == [left_out]


def test_nothing_is_said_before_a_pair_has_ended_nor_of_an_emulated_device() -> None:
    assert analyse([twin_row("A", 1)], aa_suite()) is None
    assert analyse(pair_rows(*noise(3), emulated=True), aa_suite()) is None
    left = analyse([twin_row("A", 1, outcome=Outcome.INFRA), twin_row("B", 1)], aa_suite())
    assert left is not None and (left.pairs, dict(left.left_out), left.times_apart) == (0, {"ended as infra": 1}, None)


# --- the report's own comparison


def test_the_reports_comparison_is_of_b_over_a() -> None:
    comparison = by_the_report(pair_rows([0.0] * 3, [0.1, 0.101, 0.099]), aa_suite(), None)
    assert comparison is not None
    ratio, verdict = comparison
    assert math.log(ratio.value) == pytest.approx(0.1) and verdict is Verdict.FASTER
    assert by_the_report([twin_row("B", 1)], aa_suite(), None) is None
    assert by_the_report([twin_row("A", 1), twin_row("B", 1, outcome=Outcome.CRASHED)], aa_suite(), None) is None
    assert np.isfinite(ratio.se)
