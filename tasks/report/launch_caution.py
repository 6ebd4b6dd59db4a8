"""What a report says of cells whose steps the host bounds, as it launches slower than the GPU computes."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.cell import Cell
from tasks.analysis.host_bound import share_without_work
from tasks.analysis.waterfall import traced
from tasks.report.text_format import listed, percent

_NAMED = 4  # cells
_MORE_LAUNCHES = {"cuda_graph": False, "compile": "none", "compile_mode": "default", "passes": "apart"}  # any other value launches less


def of_host_bound(cells: Sequence[Cell]) -> list[str]:
    """One sentence that names the cells whose GPU waits for launches for much of a step, the longest first. `cells`: those with a value."""
    shares = {cell: share for cell in cells if (share := share_without_work(cell)) is not None}
    if not shares:
        return []
    longest = sorted(shares, key=lambda cell: shares[cell], reverse=True)
    which = "the cell" if len(cells) == 1 else "every cell" if len(shares) == len(cells) else f"{len(shares)} of {len(cells)} cells"
    named = listed([f"{percent(shares[cell])} of a step in {cell.short}" for cell in longest], _NAMED)
    return [
        f"The host bounds {which}: its CPU launches operations slower than the GPU does them. By what it did in traced steps, a GPU had "
        f"nothing to do for about {named}. Such a rate tells of that CPU, and of what else it did, more than of the GPU; a larger batch "
        f"takes fewer launches a sample.{_without_bound(list(shares), cells)}"
    ]


def _without_bound(bound: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Which settings of the sweep have the host launch less and are in no cell that it bounds, but in a traced one beside such a cell."""
    tried = {text for cell in bound for text in cell.told.values()}
    beside = [cell for cell in cells if cell not in bound and traced(cell) is not None and any(_same_work(cell, other) for other in bound)]
    names = dict.fromkeys(
        text
        for cell in beside
        for axis, text in cell.told.items()
        if axis in _MORE_LAUNCHES and cell.axes[axis] != _MORE_LAUNCHES[axis] and text not in tried
    )
    with_ = " or ".join(f"with {name}" for name in names)
    return f" In this sweep it bounds none of the traced cells that do the same work {with_}." if names else ""


def _same_work(cell: Cell, other: Cell) -> bool:
    return cell.work == other.work and cell.devices == other.devices
