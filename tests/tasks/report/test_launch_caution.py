"""A report tells in words which cells the host bounds."""

from __future__ import annotations

from tasks.analysis.trial_row import TrialRow
from tasks.report.launch_caution import of_host_bound
from tests.tasks.analysis.test_host_bound import rank
from tests.tasks.analysis.test_waterfall import PROFILE
from tests.tasks.cell_support import made, report_of, row, workers

MEANS = ". Such a rate tells of that CPU, and of what else it did, more than of the GPU; a larger batch takes fewer launches a sample."
HOW = "its CPU launches operations slower than the GPU does them. By what it did in traced steps, a GPU had nothing to do for about "


TRACED = {**PROFILE, "where": "device", "steps": 4, "span_s": 1.0, "idle_s": 0.5, "groups": []}


def rows(*works: float) -> list[TrialRow]:
    """Cells of 80 samples a second, 8 a step, whose GPU works so long of a step of 0.1 s."""
    return [
        row(workers(count), 80.0, profile={**TRACED, "ranks": [rank(0.2, busy)]}, device="cuda", summary={"mfu": 0.1})
        for count, busy in enumerate(works)
    ]


def test_the_cells_are_named_the_longest_idle_first() -> None:
    assert of_host_bound(made(rows(0.05, 0.025, 0.1))) == [
        f"The host bounds 2 of 3 cells: {HOW}75.0 % of a step in MP-1 and 50.0 % of a step in MP-0{MEANS}"
    ]
    assert of_host_bound(made(rows(0.05, 0.025)))[0].startswith("The host bounds every cell: ")
    assert of_host_bound(made(rows(0.05)))[0].startswith("The host bounds the cell: ")
    assert of_host_bound(made(rows(0.1, 0.09))) == [] == of_host_bound([])


def test_of_many_cells_the_rest_is_counted() -> None:
    [line] = of_host_bound(made(rows(*(0.01 * count for count in range(1, 7)))))
    assert f"{HOW}90.0 % of a step in MP-0, 80.0 % of a step in MP-1, 70.0 % of a step in MP-2 and 3 more{MEANS}" in line


def test_it_stands_among_what_is_to_be_read_with_care() -> None:
    [group] = [group for group in report_of(rows(0.025)).caution_groups if group.title == "Launches"]
    assert group.lines == [f"The host bounds the cell: {HOW}75.0 % of a step in {report_of(rows(0.025)).cells[0].short}{MEANS}"]
    assert not [group for group in report_of(rows(0.1)).caution_groups if group.title == "Launches"]
