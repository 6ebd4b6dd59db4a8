"""What the headline of several groups of work names: what is decided in each of few, and of many those with a winner first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.stats.verdict import Verdict
from tasks.analysis.judge_cells import LEFT_OPEN, OF_MANY
from tasks.report.answer import find_answers
from tasks.report.group_answers import ALL_APART, APART, of_groups
from tasks.report.headline import headline_of
from tasks.report.html import render_html
from tasks.report.markdown import render_markdown
from tasks.report.model import Report
from tasks.report.next_step import NextStep, Outlook
from tests.tasks.cell_support import EVEN, ROUGH, made, repeats, report_of, settings, table_of, workers

BY = "(1.43–1.58)"  # of three repeats each, EVEN and its reverse, of 100 and 150
SUITE = {**settings(rows=("model",)), "same_work": ["model"]}


def of_rates(rates: Sequence[float | None], noise: Sequence[float] = EVEN) -> Report:
    """Of groups a, b, c, ...: a baseline of 100, and a cell of the group's rate beside it where it has one."""
    rows = []
    for model, rate in zip("abcdefghi", rates, strict=False):
        rows += repeats(workers(0, model=model), 100.0, noise)
        rows += [] if rate is None else repeats(workers(1, model=model), rate, noise[::-1])
    return report_of(rows, SUITE)


def won(group: str) -> str:
    return f"{group}: MP-1 is fastest, x1.50 {BY} over MP-0"


def test_where_each_cell_does_other_work_nothing_is_compared() -> None:
    rows = [one for model in "ab" for one in repeats(workers(0, model=model), 100.0)]
    report = report_of(rows, SUITE)
    assert report.headline == ALL_APART
    assert [place.speedup for _, row in table_of(rows, SUITE).rows for place in row if place.cell] == ["", ""], "baselines of nothing"


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((150.0, 150.0), f"{won('a')}; {won('b')}."),
        ((150.0, 101.0), f"{won('a')}; undecided: b."),
        ((101.0, 101.0), "Undecided: a and b."),
        ((150.0, None), f"{won('a')}."),
        ((150.0, 101.0, 101.0, 150.0), f"{won('a')}; {won('d')}; undecided: b and c."),
        ((101.0,) * 5, "No winner in 5 groups of cells."),
        ((101.0, 101.0, 101.0, 101.0, 150.0), f"A winner in 1 of 5 groups of cells: {won('e')}."),
        ((150.0,) * 4 + (101.0,), f"A winner in 4 of 5 groups of cells: {'; '.join(map(won, 'abcd'))}."),
        ((150.0,) * 5, f"A winner in each of 5 groups of cells: {'; '.join(map(won, 'abc'))}; and 2 more."),
    ],
)
def test_what_is_decided_in_each_group_is_named(rates: tuple[float | None, ...], said: str) -> None:
    assert f"{of_groups(of_rates(rates).answers)}." == said


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((150.0, 150.0), "MP-1 is fastest in each of 2 groups of cells"),
        ((150.0, 50.0), "A winner in each of 2 groups of cells"),
        ((150.0, 50.0, 101.0), "A winner in 2 of 3 groups of cells"),
        ((101.0, 101.0), "No winner in 2 groups of cells"),
        ((150.0, None), "a: MP-1 is fastest"),
        ((101.0, None), "a: No clear winner: MP-1 and MP-0 are not shown to differ"),
    ],
)
def test_the_headline_says_where_there_is_a_winner_and_each_group_has_its_line(rates: tuple[float | None, ...], said: str) -> None:
    report = of_rates(rates)
    found = headline_of(report)
    assert (found.said, found.details[0], len(found.groups)) == (said, APART, len(rates))
    for text in (render_markdown(report), " ".join(render_html(report).split())):
        assert text.count(APART) == 1 and (text.count("150.0 samples/s, ±") == 0) == (150.0 not in rates)


def of_cells(axis: str, values: Sequence[tuple[object, float]]) -> str:
    """Of groups a and b, which are alike: three repeats that agree of each of these rates."""
    rows = [
        one
        for model in "ab"
        for value, rate in values
        for one in repeats(workers(0, model=model) | {axis: value}, rate, (-0.0001, 0.0, 0.0001))
    ]
    first = {axis: values[0][0]}
    report = report_of(rows, {**settings(rows=("model",), columns=axis, baseline=first), "same_work": ["model"]})
    a, b = of_groups(report.answers).split("; ")
    assert b == f"b{a[1:]}"
    return a


def test_what_is_the_same_is_no_longer_undecided() -> None:
    axis = "dataloader_workers"
    assert of_cells(axis, [(0, 100.0), (1, 100.0)]) == "a: MP-1 is the same as MP-0 to within 2.0 %"
    three = of_cells(axis, [(0, 100.0), (1, 100.0), (2, 100.0), (3, 50.0)])
    assert three == "a: MP-1 and MP-2 are the same as MP-0 to within 2.0 %", "one that is beaten is none of them"


def test_of_several_first_cells_the_best_is_named_beside_the_baseline_that_they_beat() -> None:
    def of_three(precision: str) -> tuple[str, list[str]]:
        loose = (-0.02, 0.0, 0.02)
        rows = []
        for model in "ab":
            rows += repeats(workers(0, model=model, precision="fp32"), 100.0, EVEN)
            rows += repeats(workers(1, model=model, precision=precision), 150.0, loose)
            rows += repeats(workers(2, model=model, precision=precision), 151.0, loose[::-1])
        answers = report_of(rows, SUITE).answers
        return of_groups(answers), [answer.line for answer in answers]

    over = "x1.51 (1.40–1.63) over the baseline MP-0"
    each = f"no clear winner, but MP-2 is {over}"
    said, lines = of_three("fp32")
    assert said == f"a: {each}; b: {each}" and all(line.endswith(f" interval, {over}") for line in lines)
    said, lines = of_three("fp8")
    assert said == "Undecided: a and b" and not any("over the" in line for line in lines), "of unproven loss, nothing is claimed"


def test_what_is_ahead_without_proof_of_its_loss_is_named_with_by_how_much() -> None:
    said = of_cells("precision", [("fp32", 100.0), ("bf16", 150.0)])
    assert said == "a: bf16 was measured x1.500 (1.500–1.500) over fp32, not claimed: loss parity unproven"


def test_what_is_not_shown_to_differ_does_not_repeat_its_work() -> None:
    """A label of the work that all of these cells have: the line begins with it."""
    axes = [(devices, model, count) for devices, model in ((1, "a"), (2, "a"), (2, "b")) for count in (0, 1)]
    rows = [one for d, m, c in axes for one in repeats(workers(c, devices=d, model=m), 100.0 + c, ROUGH if c else ROUGH[::-1])]
    found = find_answers(made(rows, {**settings(rows=("model",)), "same_work": ["model"]}))
    assert [answer.line.partition(";")[0] for answer in found] == [
        f"{work}: No clear winner: MP-1 and MP-0 are not shown to differ" for work in ("devices 1 · a", "devices 2 · a", "devices 2 · b")
    ]


def test_what_the_table_alone_leaves_open_asks_for_the_rounds_that_would_decide_it_too() -> None:
    base, best = cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])
    assert best.baseline is base
    best.verdict, best.why_undecided = Verdict.UNDECIDED, OF_MANY
    [found] = find_answers(cells, Outlook("made-up", "sweep run made_up", round_s=40.0, left_s=0.0))
    assert found.winner is None and f"Undecided against MP-0: {LEFT_OPEN}." in found.certainty
    assert found.next_step == NextStep("sweep resume made-up --budget 1m", 40.0)
