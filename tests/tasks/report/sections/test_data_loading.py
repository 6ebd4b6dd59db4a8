"""Section: how many loader processes or threads are enough, and which of the two."""

from __future__ import annotations

from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.report.sections.data_loading import loaders_compared, saturation
from tests.tasks.cell_support import EVEN, in_threes, made, repeats, row, settings, workers

ROUGH = (-0.2, 0.0, 0.2)


def said(cells: list[Cell]) -> str:
    [found] = saturation(cells)
    assert list(found.cells) == cells
    return found.sentence


def test_the_fewest_processes_that_no_more_are_shown_to_beat_are_enough() -> None:
    waits = "the device waits for the host 5.0 % of the step."
    wait = f"; at MP-1 {waits}"
    assert said(in_threes((100.0, 150.0, 150.0))) == f"MP-1 is enough: x1.500 (1.500–1.500) over MP-0; MP-2 adds nothing{wait}"
    assert said(in_threes((100.0, 100.1, 100.2))) == f"MP-0 is enough; MP-1 and MP-2 add nothing; at MP-0 {waits}"
    assert said(in_threes((100.0, 150.0, 120.0))) == (
        f"MP-1 is enough: x1.500 (1.500–1.500) over MP-0; MP-2 x0.800 (0.800–0.800) is slower{wait}"
    )
    assert said(in_threes((150.0, 100.0, 120.0))) == (
        f"MP-0 is enough; MP-1 x0.667 (0.667–0.667) and MP-2 x0.800 (0.800–0.800) are slower; at MP-0 {waits}"
    )


def test_what_is_undecided_leaves_a_doubt() -> None:
    """MP-2 is not shown to be faster, nor to add nothing."""
    found = said(in_threes((100.0, 150.0, 160.0), (EVEN, EVEN, ROUGH)))
    assert (
        found.startswith("Undecided whether MP-1 is enough: x1.500 (1.")
        and " over MP-0; MP-2 x1.07 (" in found
        and ") over MP-1; at MP-1 the device waits" in found
    )


def test_single_trials_decide_nothing() -> None:
    cells = made([row(workers(count), 100.0 * (count + 1), within=1e-4) for count in (0, 1, 2)])
    assert said(cells) == "Undecided how many are enough: over MP-0, MP-1 x2.00 (interval unknown) and MP-2 x3.00 (interval unknown)."


def test_the_largest_count_may_be_the_fastest_measured() -> None:
    assert said(in_threes((100.0, 150.0, 200.0))) == (
        "MP-2 is the fastest measured (x2.000 (2.000–2.000) over MP-0), and no larger count was tried; "
        "at MP-2 the device waits for the host 5.0 % of the step."
    )


def test_a_larger_count_without_a_value_was_tried_and_is_named() -> None:
    rows = [one for count, rate in ((0, 100.0), (1, 150.0)) for one in repeats(workers(count), rate)]
    lost = [row(workers(2), None, outcome=Outcome.CRASHED), row(workers(4), None, outcome=None)]
    [found] = saturation(made([*rows, *lost]))
    assert found.sentence == (
        "MP-1 is the fastest measured (x1.500 (1.500–1.500) over MP-0), and no larger count has a value: MP-2 crashed and MP-4 to do."
    )
    [level] = saturation(made([*repeats(workers(0), 100.0), *repeats(workers(1), 100.1), *lost]))
    assert level.sentence == "MP-0 is enough; MP-1 adds nothing; without a value: MP-2 crashed and MP-4 to do."


def test_saturations_margin_is_two_percent() -> None:
    for ratio, enough in (
        (1.019, "MP-0 is enough; MP-1 adds nothing."),
        (1.021, "MP-1 is the fastest measured (x1.021 (1.021–1.021) over MP-0), and no"),
    ):
        cells = made([*repeats(workers(0), 100.0), *repeats(workers(1), 100.0 * ratio)])
        assert saturation(cells)[0].sentence.startswith(enough)


def test_only_cells_that_differ_in_nothing_else_are_put_in_a_row() -> None:
    counts = [("a", 8), ("a", 0), ("b", 0), ("b", 2), ("c", 0)]
    rows = [one for model, count in counts for one in repeats(workers(count, model=model), 100.0)]
    rows += [row(workers(1, model="c"), None, outcome=Outcome.CRASHED), row({"pool": "cpu", "model": "c"}, 100.0)]
    rows += [row({"pool": "cpu", "model": "c", "dataloader_workers": "auto"})]
    found = saturation(made(rows, settings(rows=("model",))))
    assert [[cell.name for cell in one.cells] for one in found] == [
        ["cpu · MP-0 · a", "cpu · MP-8 · a"],
        ["cpu · MP-0 · b", "cpu · MP-2 · b"],
    ]
    assert found[1].sentence == "b: MP-0 is enough; MP-2 adds nothing."
    [bare] = saturation(made([one for count in (0, 1) for one in repeats({"dataloader_workers": count}, 100.0)]))
    assert bare.sentence == "MP-0 is enough; MP-1 adds nothing."


def by_loader(rates: dict[tuple[str, int], float], **axes: str) -> list[Cell]:
    """Cells by loader and number, three repeats each."""
    rows = [
        one
        for (loader, count), rate in rates.items()
        for one in repeats({"pool": "cpu", **axes, "loader": loader, "dataloader_workers": count}, rate)
    ]
    return made(rows, settings(baseline={"loader": "processes", "dataloader_workers": 0}, rows=("loader",)))


def test_threads_are_a_row_of_their_own_which_begins_without_any_loader() -> None:
    cells = by_loader(
        {("processes", 0): 100.0, ("processes", 1): 150.0, ("processes", 2): 150.0, ("threads", 1): 120.0, ("threads", 2): 180.0}
    )
    processes, threads = found = saturation(cells)
    assert processes.sentence == "loader processes: MP-1 is enough: x1.500 (1.500–1.500) over MP-0; MP-2 adds nothing."
    assert (
        threads.sentence == "loader threads: MP-2 is the fastest measured (x1.800 (1.800–1.800) over MP-0), and no larger count was tried."
    )
    assert [cell.short for cell in threads.cells] == ["MP-0", "loader threads · MP-1", "loader threads · MP-2"]
    assert loaders_compared(found) == [
        "With as many as are enough, loader threads · MP-2 is better than loader processes · MP-1: x1.200 (1.200–1.200)."
    ]
    assert saturation(cells, of=threads.cells[2])[0].sentence == threads.sentence
    assert [row.sentence for row in saturation(cells, of=cells[0])] == [processes.sentence]


def test_loaders_are_compared_in_every_verdict_and_only_where_nothing_else_differs() -> None:
    for rate, words in (
        (150.0 / 1.019, "the same as loader processes · MP-1: x0.981 ("),
        (150.0 / 1.021, "worse than loader processes · MP-1: x0.979 ("),
        (150.0, "the same as loader processes · MP-1: x1.000 ("),
    ):
        rates = {("processes", 0): 100.0, ("processes", 1): 150.0, ("threads", 1): rate}
        [line] = loaders_compared(saturation(by_loader(rates)))
        assert line.startswith(f"With as many as are enough, loader threads · MP-1 is {words}")
    alone = {("processes", 0): 100.0, ("processes", 1): 150.0, ("threads", 1): 90.0}
    assert loaders_compared(saturation(by_loader(alone))) == [], "no thread is enough: there is none to compare"
    other = [*by_loader({("processes", 0): 100.0, ("processes", 1): 150.0}, model="a"), *by_loader({("threads", 1): 150.0}, model="b")]
    assert loaders_compared(saturation(other)) == []
