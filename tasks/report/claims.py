"""What may be claimed of a cell: whether its loss keeps to that of its reference, and what a reader is told where that is not shown."""

from __future__ import annotations

from tasks.analysis.cell import Cell


def is_struck(cell: Cell) -> bool:
    """Whether its loss left the band of its reference: no speed-up is claimed, and it never wins."""
    return not cell.claimed


def is_unproven(cell: Cell) -> bool:
    """Whether nothing shows that it learns what its reference learns: its speed-up is shown, and not claimed."""
    return cell.claimed and cell.parity is None and bool(cell.parity_note)


def why_not(cell: Cell) -> str:
    """Why no speed-up of it may be claimed; empty where one may."""
    return (cell.parity_note or "") if is_struck(cell) or is_unproven(cell) else ""
