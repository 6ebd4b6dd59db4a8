"""The names of cells beside each other, without what need not be said again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.analysis.cell import Cell


def names_among(cells: Sequence[Cell]) -> tuple[str, list[str]]:
    """What these cells have in common of what tells the sweep's cells apart, and what tells each from the others: `bf16`, [`MP-0`, `MP-1`].

    Nothing is in common where a cell would have no name left.
    """
    labels = [list(cell.told.values()) for cell in cells]
    common = [one for one in labels[0] if all(one in other for other in labels)]
    own = [" · ".join(one for one in each if one not in common) for each in labels]
    return (" · ".join(common), own) if all(own) else ("", [cell.short for cell in cells])


def without_labels(said: str, work: str) -> str:
    """`said` with the names of cells without the labels that `work` has already: what is left tells them apart."""
    for one in map(re.escape, work.split(" · ")):
        said = re.sub(rf"(?<!\S){one} · | · {one}(?![^\s,:;.]|\.\d)", "", said)
    return said


def as_baseline(cell: Cell) -> str:
    """`baseline no cuda_graph`; a suite may call the cell itself `baseline`, which is enough."""
    return cell.short if cell.short == "baseline" else f"baseline {cell.short}"
