"""The answer of a sweep: the winner, what it cannot be told from, and a winner for each group of cells that do the same work."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.trial import Outcome
from tasks.report.answer import comparable, find_winner, winners_apart
from tests.tasks.cell_support import EVEN, in_threes, made, repeats, row, settings, steady, workers

ROUGH = (-0.2, 0.0, 0.2)
OTHER = (-0.02, 0.0, 0.02)  # over EVEN: pairs' standard deviation is 0.01


def test_the_winner_leads_the_next_by_its_paired_ratio() -> None:
    cells = in_threes((100.0, 150.0, 120.0), (EVEN, EVEN, OTHER))
    winner = find_winner(cells)
    assert winner is not None and winner.cell is cells[1] and winner.compared == 3
    assert winner.next is cells[2] and winner.level == []
    assert winner.lead is not None and winner.lead.value == pytest.approx(1.25)
    assert winner.headline == "cpu · MP-1 is fastest"
    assert winner.figures == [
        ("150.0 samples/s", "±2.5 %, 95 % interval"),  # 4.303, t with 2 degrees of freedom, x 0.01 over the root of 3
        ("x1.50", "(1.500–1.500) over the baseline cpu · MP-0"),
    ]
    assert winner.certainty == "It beats every other cell; the next, cpu · MP-2, by x1.25 (1.22–1.28)."
    assert winner.sentences == [
        "150.0 samples/s, ±2.5 %, 95 % interval.",
        "x1.50, (1.500–1.500) over the baseline cpu · MP-0.",
        winner.certainty,
    ]


def test_what_is_undecided_or_the_same_shares_the_place() -> None:
    cells = in_threes((100.0, 150.0, 149.0), (EVEN, EVEN, EVEN))
    winner = find_winner(cells)
    assert winner is not None and winner.level == [cells[2]] and winner.next is cells[0]
    assert winner.certainty == "Not told apart from it with these repeats: cpu · MP-2."
    cells = in_threes((100.0, 150.0, 120.0), (EVEN, EVEN, ROUGH))
    winner = find_winner(cells)
    assert winner is not None and winner.level == [cells[2]], "20 % less, and undecided"


def test_the_winners_margin_is_two_percent() -> None:
    for ratio, level in ((1.019, 1), (1.021, 0)):
        winner = find_winner(made([*steady(workers(0), 100.0), *steady(workers(1), 100 * ratio)]))
        assert winner is not None and len(winner.level) == level


def test_less_is_better_for_a_time() -> None:
    metric = "step_time_median_s"
    rows = [one for count, value in enumerate((0.3, 0.2, 0.25)) for one in steady(workers(count), value, metric=metric)]
    winner = find_winner(made(rows, settings(metric=metric)))
    assert winner is not None and winner.cell.name == "cpu · MP-1" and winner.headline == "cpu · MP-1 is best"
    assert winner.lead is not None and winner.lead.value == pytest.approx(1.25)
    assert winner.figures[0][0] == "200 ms" and winner.figures[1][0] == "x1.50"


def test_a_winner_that_is_the_baseline_or_alone_says_so() -> None:
    cells = in_threes((150.0, 100.0, 120.0))
    winner = find_winner(cells)
    assert winner is not None and len(winner.figures) == 1
    assert winner.certainty.startswith("It is the baseline. It beats every other cell; the next, cpu · MP-2, by x1.25")
    winner = find_winner(in_threes((150.0, 149.9, 120.0)))
    assert winner is not None and winner.certainty == "It is the baseline. Not told apart from it with these repeats: cpu · MP-1."
    alone = find_winner(made([row(workers(0))]))
    assert alone is not None and alone.certainty == "It is the baseline. There is nothing to compare it with."
    assert alone.figures == [("100.0 samples/s", "no interval: it needs repeats")]
    assert find_winner(made([row(workers(0), None, outcome=Outcome.CRASHED)])) is None
    assert find_winner([]) is None


@pytest.mark.parametrize(
    ("rate", "noise", "words"), [(101.0, EVEN, "the same as"), (110.0, ROUGH, "undecided against"), (110.0, EVEN, "over")]
)
def test_the_winners_speedup_says_how_sure_it_is(rate: float, noise: Sequence[float], words: str) -> None:
    winner = find_winner(made([*repeats(workers(0), 100.0), *repeats(workers(1), rate, noise)]))
    assert winner is not None and winner.figures[1][1].endswith(f") {words} the baseline cpu · MP-0")


def test_a_cell_that_left_its_loss_band_neither_wins_nor_is_compared() -> None:
    rows = [
        row(workers(count, precision=precision), rate, losses=[loss] * 50, within=1e-3)
        for precision, count, rate, loss in (("fp32", 0, 100.0, 2.0), ("bf16", 0, 150.0, 2.0), ("bf16", 1, 900.0, 3.0))
    ]
    cells = made(rows, settings(rows=("precision",)))
    winner = find_winner(cells)
    assert winner is not None and winner.cell is cells[1] and winner.compared == 2
    assert comparable(cells) == {"": cells[:2]}


def test_cells_are_grouped_by_the_work_they_do() -> None:
    rows = [
        row(workers(0, model=model, batch_size=batch), 100.0, metric=metric)
        for metric in ("throughput", "latency_p50_s")
        for model in ("a", "b")
        for batch in (1, 8)
    ]
    assert [(name, len(group)) for name, group in comparable(made(rows[:4])).items()] == [("a", 2), ("b", 2)]
    latencies = made(rows[4:], settings(metric="latency_p50_s"))
    expected = [(f"{model} · batch_size {batch}", 1) for model in "ab" for batch in (1, 8)]
    assert [(name, len(group)) for name, group in comparable(latencies).items()] == expected
    assert list(comparable(made([row(workers(0), None, outcome=Outcome.HANG)]))) == []


def test_each_groups_winner_in_a_sentence() -> None:
    rates = {("a", 0): 100.0, ("a", 1): 125.0, ("b", 0): 10.0, ("b", 1): 10.001, ("b", 2): 5.0, ("c", 0): 7.0}
    rows = [one for (model, count), rate in rates.items() for one in repeats(workers(count, model=model), rate)]
    assert winners_apart(comparable(made(rows, settings(rows=("model",))))) == [
        "cpu · MP-1 · a is fastest: 125.0 samples/s, ±2.5 %, 95 % interval, x1.25 (1.250–1.250) before the next",
        "cpu · MP-1 · b is fastest: 10.00 samples/s, ±2.5 %, 95 % interval, not told apart from 1 other",
        "cpu · MP-0 · c is fastest: 7.000 samples/s, ±2.5 %, 95 % interval",
    ]
    assert winners_apart({"nothing": made([row(workers(0), None)])}) == []
