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


def beside(works: float, *, profiled: bool = True, **axes: object) -> TrialRow:
    """A cell like those of `rows` with these axes."""
    profile = {**TRACED, "ranks": [rank(0.2, works)]} if profiled else None
    return row({"pool": "cpu", **axes}, 80.0, profile=profile, device="cuda", summary={"mfu": 0.1})


def advised(*rows: TrialRow) -> str:
    """What is said behind the advice of a larger batch."""
    [line] = of_host_bound(made(rows))
    return line.partition("fewer launches a sample.")[2]


def test_settings_of_the_sweep_that_launch_less_are_named_where_the_host_does_not_bind_them() -> None:
    plain, recorded = beside(0.025, cuda_graph=False, compile="none"), beside(0.1, cuda_graph=True, compile="none")
    none = " In this sweep it bounds none of the traced cells that do the same work with "
    assert advised(plain, recorded) == f"{none}cuda_graph."
    compiled = beside(0.1, cuda_graph=False, compile="layer")
    assert advised(plain, recorded, compiled) == f"{none}cuda_graph or with compile layer."
    assert advised(plain, beside(0.02, cuda_graph=False, compile="layer"), compiled, recorded) == f"{none}cuda_graph.", (
        "compiled, one is bound"
    )


def test_no_setting_is_named_that_was_not_traced_or_does_other_work_or_launches_as_much() -> None:
    plain = beside(0.025, cuda_graph=False, width=8)
    assert advised(plain, beside(0.1, cuda_graph=True, width=8, profiled=False)) == ""
    assert advised(plain, beside(0.1, cuda_graph=True, width=16)) == ""
    assert advised(plain, beside(0.1, cuda_graph=False, width=8, dataloader_workers=3)) == ""
    assert advised(beside(0.025, cuda_graph=True), beside(0.1, cuda_graph=False)) == ""


def test_it_stands_among_what_is_to_be_read_with_care() -> None:
    [group] = [group for group in report_of(rows(0.025)).caution_groups if group.title == "Launches"]
    assert group.lines == [f"The host bounds the cell: {HOW}75.0 % of a step in {report_of(rows(0.025)).cells[0].short}{MEANS}"]
    assert not [group for group in report_of(rows(0.1)).caution_groups if group.title == "Launches"]
