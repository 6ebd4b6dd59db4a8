"""No speed-up is claimed for a cell whose loss left the band of its reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.parameters import REFERENCE, SAME_MATHEMATICS
from experiments.stats.loss_parity import loss_parity
from tasks.analysis.cell import Cell


def gate_on_parity(cells: Sequence[Cell]) -> None:
    """Set `parity` where there is an fp32 cell of the same seed and mathematics, `parity_note` where there should be one and is not."""
    for cell in cells:
        precision = cell.trial.parameters.get("precision")
        if precision in (None, REFERENCE) or not cell.measured:
            continue
        reference, why_not = _reference(cell, cells)
        if reference is None:
            cell.parity_note = f"{why_not}: the loss was not gated"
            continue
        curves = [row.losses for row in reference.measured]
        try:
            parities = [loss_parity(curves[0], row.losses, others=curves[1:]) for row in cell.measured]
        except ValueError as error:
            cell.parity_note = f"the loss was not gated: {error}"
            continue
        cell.parity = max(parities, key=lambda parity: parity.worst)
        if not cell.parity.inside:
            where, by = cell.parity.left_at, cell.parity.worst
            how = f"by {by:.1f} times its half-width" if math.isfinite(by) else "it is not finite there"
            cell.parity_note = f"the loss left the band of fp32 at step {where} ({how}): no speed-up is claimed"


def _reference(cell: Cell, cells: Sequence[Cell]) -> tuple[Cell | None, str]:
    """The fp32 cell that learns the same, with as few other settings changed as there are; the same pool first. Else None, and why."""
    mine = _settings(cell)

    def changed(other: Cell) -> set[str]:
        theirs = _settings(other)
        return {name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)}

    others = [(other, changed(other)) for other in cells if other.trial.parameters.get("precision") == REFERENCE]
    able = [(other, names) for other, names in others if names <= SAME_MATHEMATICS]
    measured = [pair for pair in able if pair[0].measured]
    if measured:
        return min(measured, key=lambda pair: (pair[0].trial.pool != cell.trial.pool, len(pair[1])))[0], ""
    if able:
        return None, f"its fp32 reference ended without a curve ({able[0][0].outcome})"
    if not others:
        return None, "no fp32 reference in the sweep"
    nearest = min((names - SAME_MATHEMATICS for _, names in others), key=len)
    return None, f"no fp32 reference: the nearest fp32 cell has another {' and '.join(sorted(nearest))}"


def _settings(cell: Cell) -> dict[str, Any]:
    """The cell's parameters, with the batch that `max` came to."""
    batch_size = next((row.result.summary.get("batch_size") for row in cell.measured if row.result), None)
    settings = dict(cell.trial.parameters)
    return {**settings, "batch_size": batch_size} if batch_size is not None and settings.get("batch_size") == "max" else settings
