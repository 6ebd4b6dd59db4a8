"""What a report says of cells whose steps the host bounds, as it launches slower than the GPU computes."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.cell import Cell
from tasks.analysis.host_bound import share_without_work
from tasks.report.text_format import listed, percent

_NAMED = 4  # cells


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
        "takes fewer launches a sample."
    ]
