"""A/B sweeps: which pairs, and the exit status that their verdicts stand for."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.ab import ab_pairs, ab_status
from tasks.report.ab_answer import ab_headline, ab_word
from tasks.sweep.ab_settings import AbSettings
from tests.tasks.cell_support import made, row, settings, steady

SIDES = AbSettings(kind="commits", a="main", b="HEAD")
A, B = SIDES.labels


def axes(side: str, width: int = 64) -> dict[str, Any]:
    return {"pool": "cpu", "width": width, "side": side}


def pairs_of(*rows: Any) -> list[Any]:
    suite = settings(rows=["pool", "width"], columns="side", baseline={"side": A})
    return ab_pairs(made([one for group in rows for one in group], suite), SIDES)


def against(b: float, width: int = 64) -> list[Any]:
    return [*steady(axes(A, width), 100.0), *steady(axes(B, width), b)]


@pytest.mark.parametrize(
    ("rates", "status", "said"),
    [
        ([100.0], 0, "B (HEAD) against A (main): same, x1.00"),
        ([150.0], 0, "B (HEAD) against A (main): faster, x1.50"),
        ([70.0], 3, "B (HEAD) against A (main): slower, x0.70"),
        ([150.0, 70.0], 3, "B (HEAD) against A (main): of 2 cells 1 slower, 1 faster"),
        ([150.0, 150.0], 0, "B (HEAD) against A (main): of 2 cells 2 faster"),
    ],
)
def test_one_slower_cell_decides_and_the_headline_counts(rates: list[float], status: int, said: str) -> None:
    pairs = pairs_of(*(against(rate, 64 * (place + 1)) for place, rate in enumerate(rates)))
    assert [pair.axes["width"] for pair in pairs] == [64 * (place + 1) for place in range(len(rates))]
    assert ab_status(pairs) == status
    assert ab_headline(pairs, SIDES).startswith(said)


def test_undecided_is_4_unless_another_is_slower() -> None:
    open_ = [row(axes(A), 100.0), row(axes(B), 101.0)]
    pairs = pairs_of(open_)
    assert (ab_status(pairs), ab_word(pairs[0])) == (4, "undecided: one trial")
    assert ab_status(pairs_of(open_, against(70.0, 128))) == 3
    assert ab_status(pairs_of(open_, against(150.0, 128))) == 4
    assert ab_status([]) == 4


def test_b_without_a_value_is_worse_where_it_ended_by_itself() -> None:
    a = steady(axes(A), 100.0)
    (lost,) = pairs_of([*a, row(axes(B), None, outcome=Outcome.DOES_NOT_FIT)])
    assert lost.worse and ab_status([lost]) == 3 and ab_word(lost) == "does not fit on B"
    for outcome in (Outcome.INFRA, None):
        (open_,) = pairs_of([*a, row(axes(B), None, outcome=outcome)])
        assert not open_.worse and ab_status([open_]) == 4
    (won,) = pairs_of([row(axes(A), None, outcome=Outcome.DOES_NOT_FIT), *steady(axes(B), 100.0)])
    assert ab_status([won]) == 4, "nothing was compared"


def test_disturbed_trials_leave_it_undecided() -> None:
    (pair,) = pairs_of(against(70.0))
    pair.b.verdict = Verdict.UNDECIDED
    assert ab_status([pair]) == 4
