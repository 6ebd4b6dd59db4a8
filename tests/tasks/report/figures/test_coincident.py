"""Curves that a figure cannot show apart are one entry of its legend."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.analysis.cell import Cell
from tasks.report.figures.coincident import CellCurve, coincident, named_together
from tasks.report.figures.loss import loss_figure
from tasks.report.figures.style import CURVES
from tests.tasks.cell_support import made, row, settings, workers

FALLING = [3.0 - at / 40 for at in range(60)]


def cells(*names: tuple[str, int]) -> list[Cell]:
    return made([row(workers(count, precision=precision)) for precision, count in names], settings(rows=("precision",)))


def curves(*heights: float, style: str = "-", steps: int = 5) -> list[CellCurve]:
    """Level lines, after one from 0 to 240: of that range, half a line's width is 0.8."""
    [cell] = cells(("fp32", 0))
    whole = CellCurve(cell, np.array([range(9), np.linspace(0, 240, 9)]), "-")
    return [whole, *(CellCurve(cell, np.array([range(steps), [height] * steps], float), style) for height in heights)]


@pytest.mark.parametrize(("second", "groups"), [(100.0, 2), (100.79, 2), (99.21, 2), (100.81, 3), (99.19, 3), (np.inf, 3)])
def test_curves_closer_than_half_a_line_are_one(second: float, groups: int) -> None:
    assert len(coincident(curves(100.0, second))) == groups


def test_other_steps_and_other_styles_are_other_curves() -> None:
    assert len(coincident([*curves(100.0), *curves(100.0, steps=4)[1:]])) == 3
    assert len(coincident([*curves(100.0), *curves(100.0, style="--")[1:]])) == 3
    assert len(coincident(curves(np.nan, np.nan))) == 2, "both unknown throughout"
    assert coincident([]) == []


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([("fp32", 0)], "MP-0 · fp32"),
        ([("fp32", 0), ("fp32", 1)], "fp32: MP-0, MP-1"),
        ([("fp32", 0), ("bf16", 1)], "MP-0 · fp32, MP-1 · bf16"),
    ],
)
def test_what_cells_share_is_said_once(names: list[tuple[str, int]], text: str) -> None:
    known = {(str(cell.axes["precision"]), cell.axes["dataloader_workers"]): cell for cell in cells(*GRID)}
    assert named_together([known[name] for name in names]) == text


def test_a_cell_without_an_axis_that_others_have_is_named_whole() -> None:
    found = made([row({"precision": "fp32"}), row({"precision": "fp32", "kernels": "fused"}), row({"precision": "bf16"})])
    names = [cell.short for cell in found[:2]]
    assert all(names) and named_together(found[:2]) == ", ".join(names)


GRID = (("fp32", 0), ("fp32", 1), ("bf16", 0), ("bf16", 1))


def test_cells_of_the_same_losses_are_one_line_that_names_all() -> None:
    rows = [row(workers(count), losses=FALLING) for count in range(3)] + [row(workers(3), losses=[loss + 1 for loss in FALLING])]
    figure = loss_figure(made(rows))
    assert figure is not None
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["MP-0, MP-1, MP-2", "MP-3"]
    assert legend.get_title().get_text() == "named together: cells whose curves lie within the width of one line"
    assert len(figure.axes[0].lines) == 2


def test_cells_that_all_have_the_same_losses_are_named_too() -> None:
    figure = loss_figure(made([row(workers(count), losses=FALLING) for count in range(2)]))
    assert figure is not None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["MP-0, MP-1"]


def test_as_many_groups_as_colours_are_named_by_cell_and_more_by_precision() -> None:
    for groups, name in ((len(CURVES), "MP-0, MP-100"), (len(CURVES) + 1, "fp32")):
        rows = [
            row(workers(count + twin), losses=[loss + count for loss in FALLING], parameters={"precision": "fp32" if count else "bf16"})
            for count in range(groups)
            for twin in (0, 100)
        ]
        figure = loss_figure(made(rows))
        assert figure is not None
        assert name in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_shorter_of_two_curves_lies_on_top() -> None:
    """Whichever is drawn first: under the longer one it would not be seen where both have the same losses."""
    for lengths in ((20, 60), (60, 20)):
        figure = loss_figure(made([row(workers(count), losses=FALLING[:length]) for count, length in enumerate(lengths)]))
        assert figure is not None
        above = {line.get_xdata().size: line.get_zorder() for line in figure.axes[0].lines}
        assert above[20] > above[max(above)]
