"""What a report says of cells that ran once on a pool whose spread between trials is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.metrics import Scale
from tasks.analysis.cell import Cell


def of_unknown_spread(cells: Sequence[Cell]) -> list[str]:
    """One sentence, after that of cells that ran once, for each pool that has a cell of a single trial without an interval.

    `cells`: those that have a value.
    Only of metrics on the logarithmic scale: single scores and counts have no interval of their own in any case.
    """
    devices: dict[str, str] = {}
    for cell in cells:
        single = len(cell.measured) == 1 and cell.metric.scale is Scale.LOG and cell.known is None
        if single and cell.estimate is not None and not math.isfinite(cell.estimate.se):
            devices.setdefault(cell.trial.pool, str(cell.measured[0].environment.get("device_name") or ""))
    return [_sentence(f"{pool} ({device})" if device else pool) for pool, device in devices.items()]


def _sentence(where: str) -> str:
    return f"A cell that ran once on pool {where} has no interval either: the spread between trials there is not known."
