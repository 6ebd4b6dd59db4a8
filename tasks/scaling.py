"""Two tables of a report: how throughput grows with the devices, and where the traced steps' time went."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.statistics import Estimate
from tasks.cells import Cell, ratio_of
from tasks.table import TextTable
from tasks.words import amount, interval, number, percent, seconds, times

DEVICES = "devices"


def scaling(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell on several devices, and for those with fewer that differ from one in nothing else.

    Efficiency: throughput over that of the fewest devices, divided by how many times more devices there are.
    """
    header = ["cell", "devices", "throughput", "speed-up", "efficiency", "all-reduce alone", "exposed", "communication share"]
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.measured and cell.metric.name == "throughput":
            rest = tuple((axis, repr(value)) for axis, value in cell.axes.items() if axis != DEVICES)
            groups.setdefault(rest, []).append(cell)
    rows = []
    for group in groups.values():
        ordered = sorted(group, key=_devices)
        if _devices(ordered[-1]) == 1:
            continue
        for cell in ordered:
            ratio = ratio_of(cell, ordered[0]) if cell is not ordered[0] else None
            assert cell.estimate is not None
            rows.append(
                [
                    cell.name,
                    str(_devices(cell)),
                    amount(cell.estimate.value, cell.metric.unit),
                    f"{times(ratio.value)} {interval(ratio)}" if ratio else "–",
                    _efficiency(ratio, _devices(cell) / _devices(ordered[0])) if ratio else "–",
                    seconds(cell.mean("communication_s")),
                    seconds(cell.mean("communication_exposed_s")),
                    percent(cell.mean("communication_share")),
                ]
            )
    return TextTable(header, rows, numeric=True)


def profile(cells: Sequence[Cell]) -> TextTable:
    """For each cell with traced steps: time by group of kernels, the largest first, and the time in which nothing ran."""
    header = ["cell", "what ran", "per step", "share", "calls per step", "longest of them"]
    rows = []
    for cell in cells:
        found = next((row.profile for row in cell.rows if row.outcome == "ok" and row.profile), None)
        if not found:
            continue
        span = float(found["span_s"])
        for group in found["groups"]:
            spent = float(group["seconds"])
            rows.append([cell.name, group["group"], seconds(spent), percent(spent / span), number(group["calls"], 3), group["top"]])
        rows.append([cell.name, f"nothing ({found['where']} idle)", seconds(found["idle_s"]), percent(found["idle_s"] / span), "–", "–"])
    return TextTable(header, rows, names=2)


def _devices(cell: Cell) -> int:
    return int(cell.trial.parameters.get(DEVICES) or 1)


def _efficiency(ratio: Estimate, more: float) -> str:
    return percent(ratio.value / more)
