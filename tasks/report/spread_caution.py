"""What a report says of how far a cell's trials lie apart: where that is not known, and where it is far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.metric import Scale
from tasks.analysis.cell import Cell
from tasks.report.text_format import listed, percent, quantity

FAR = 0.10  # of the highest: farther apart, the mean of a cell's trials says little of any one of them
_NAMED = 4  # cells


def of_unknown_spread(cells: Sequence[Cell]) -> list[str]:
    """One sentence, after that of cells that ran once, for each pool that has a cell of a single trial without an interval.

    `cells`: those that have a value.
    Only of metrics on the logarithmic scale: single scores and counts have no interval of their own in any case.
    """
    pools: dict[str, str] = {}
    workloads: dict[str, dict[str, None]] = {}
    for cell in _single(cells):
        if cell.known is None and cell.estimate is not None and not math.isfinite(cell.estimate.se):
            pools.setdefault(cell.trial.pool, _where(cell))
            workloads.setdefault(cell.trial.pool, {})[cell.trial.workload] = None
    return [
        f"A cell that ran once on pool {where} has no interval either: the spread between trials of {listed([*workloads[pool]])} there is "
        "not known."
        for pool, where in pools.items()
    ]


def of_known_spread(cells: Sequence[Cell]) -> list[str]:
    """One sentence for each workload on a pool that has a cell of a single trial whose interval is what past sweeps say.

    `cells`: as above.
    """
    spreads: dict[tuple[str, str], float] = {}
    for cell in _single(cells):
        if cell.known is not None and cell.estimate is not None:
            spreads.setdefault((_where(cell), cell.trial.workload), cell.known.sd)
    return [
        f"A cell that ran once on pool {where} has its interval from other settings' trials in past sweeps of {workload} there, whose "
        f"standard deviation was {percent(sd)} (`sweep spread`)."
        for (where, workload), sd in spreads.items()
    ]


def _single(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if len(cell.measured) == 1 and cell.metric.scale is Scale.LOG]


def _where(cell: Cell) -> str:
    device = cell.measured[0].environment.get("device_name")
    return f"{cell.trial.pool} ({device})" if device else cell.trial.pool


def of_far_trials(cells: Sequence[Cell]) -> list[str]:
    """One sentence that names the cells whose lowest trial lies more than FAR below their highest, the farthest first.

    `cells`: those that have a value. Of metrics on the logarithmic scale alone: differences of scores are no shares.
    """
    apart = {cell: 1 - min(cell.values) / max(cell.values) for cell in cells if cell.metric.scale is Scale.LOG and len(cell.measured) > 1}
    far = sorted((cell for cell, share in apart.items() if share > FAR), key=lambda cell: apart[cell], reverse=True)
    if not far:
        return []
    named = [f"{percent(apart[cell])} in {cell.short} ({_ends(cell)})" for cell in far]
    return [f"Trials of a cell lie far apart, the lowest below the highest by {listed(named, _NAMED)}."]


def of_rounds(cells: Sequence[Cell]) -> list[str]:
    """One sentence for each pool where rounds are found to act on some cells otherwise than on others. `cells`: those that have a value."""
    pools = {cell.trial.pool: _where(cell) for cell in cells if cell.layout is not None and cell.layout.rounds_differ}
    return [
        f"On pool {where} a test at 5 % finds that rounds acted on some cells otherwise than on others: what is compared over all rounds "
        "is compared in pairs there, by the rounds that both ran in. Verdicts of earlier looks stand."
        for where in pools.values()
    ]


def _ends(cell: Cell) -> str:
    return f"{quantity(min(cell.values), cell.metric)} and {quantity(max(cell.values), cell.metric)}"
