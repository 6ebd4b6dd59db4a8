"""Section: how throughput grows with the number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.stats.estimate import Estimate
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import ONE_TRIAL, SPREADS_DIFFER, judge_pairs
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import interval, percent, quantity, seconds, times

DEVICES = "devices"
PER_DEVICE = "tflops_per_device"
ABOUT = (
    "Over the fewest devices of cells that differ in nothing else. Exposed: how much longer a step's forward and backward take with the "
    "all-reduce of gradients than without it; its part of the step is the communication share."
)


def section(source: ReportSource) -> Section | None:
    return table_section("scaling", "Scaling", scaling(source.cells), ABOUT)


def scaling(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell on several devices, and for those with fewer that differ from one in nothing else.

    Efficiency: throughput over that of the fewest devices, divided by how many times more devices there are.
    """
    header = ["cell", "devices", "rate", "speed-up", "efficiency", "all-reduce alone", "exposed", "communication share"]
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.measured and cell.metric.name in ("throughput", PER_DEVICE):
            rest = tuple((axis, repr(value)) for axis, value in cell.axes.items() if axis != DEVICES)
            groups.setdefault((*rest, repr(cell.work)), []).append(cell)
    rows = []
    for group in groups.values():
        ordered = sorted(group, key=_devices)
        if len({_devices(cell) for cell in ordered}) == 1 and ordered[0].mean("communication_s") is None:
            continue  # nothing to compare, and nothing known of what several devices cost
        for cell in ordered:
            ratio, why = _ratio(cell, ordered[0]) if cell is not ordered[0] else (None, "")
            assert cell.estimate is not None
            rows.append(
                [
                    cell.short,
                    str(_devices(cell)),
                    quantity(cell.estimate.value, cell.metric),
                    _with_doubt(ratio, why) if ratio else "–",
                    _efficiency(ratio, _devices(cell) / _devices(ordered[0])) if ratio else "–",
                    seconds(cell.mean("communication_s")),
                    seconds(cell.mean("communication_exposed_s")),
                    percent(cell.mean("communication_share")),
                ]
            )
    return TextTable(header, rows, numeric=True)


def _with_doubt(ratio: Estimate, why: str) -> str:
    """x3.80 (3.71–3.89), with why that is undecided where a cell has too few trials for a verdict. `why` is of the metric itself."""
    return f"{times(ratio.value)} {interval(ratio)}{f' undecided: {why}' if why in (ONE_TRIAL, SPREADS_DIFFER) else ''}"


def _ratio(cell: Cell, fewest: Cell) -> tuple[Estimate, str]:
    """Of what all devices do together, whether the metric is of one device or of all; and why more repeats are needed, if they are."""
    [found] = judge_pairs([(cell, fewest)])
    more = _devices(cell) / _devices(fewest) if cell.metric.name == PER_DEVICE else 1.0
    ratio = found.ratio
    return replace(ratio, value=ratio.value * more, low=ratio.low * more, high=ratio.high * more), found.why_undecided or ""


def _devices(cell: Cell) -> int:
    return int(cell.trial.parameters.get(DEVICES) or 1)


def _efficiency(ratio: Estimate, more: float) -> str:
    return percent(ratio.value / more)
