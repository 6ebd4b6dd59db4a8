"""What a report says of cells that ran once on a pool whose spread between trials is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.metrics import Scale
from tasks.analysis.cell import Cell


def of_unknown_spread(cells: Sequence[Cell]) -> list[str]:
    """One sentence for each pool that has a cell of a single trial without an interval; `cells`: those that have a value."""
    lines = []
    for pool in dict.fromkeys(cell.trial.pool for cell in cells):
        mine = [cell for cell in cells if cell.trial.pool == pool]
        once = [cell for cell in mine if len(cell.measured) == 1 and _unbounded(cell)]
        if not once:
            continue
        device = once[0].measured[0].environment.get("device_name")
        who = "Each cell" if len(once) == len(mine) else f"{len(once)} of {len(mine)} cells"
        where = f"pool {pool} ({device})" if device else f"pool {pool}"
        lines.append(
            f"{who} ran once and the spread between trials on {where} is not known: no interval is given. `--repeats 3` measures it."
        )
    return lines


def _unbounded(cell: Cell) -> bool:
    return cell.estimate is not None and cell.metric.scale is Scale.LOG and not math.isfinite(cell.estimate.se)
