"""Section: others' numbers for a workload, each beside our nearest cell of the same model on as many devices, and what differs from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.literature.reader import OURS, LiteratureValue, literature_for
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import amount, plural

ABOUT = (
    "Not our measurements. Beside each stands our nearest cell of the same model on as many devices, and what else differs. "
    "What was published of other models, or of other numbers of devices save for rates per device, is left out."
)


def section(source: ReportSource) -> Section | None:
    section = table_section("nearest_literature", "Published by others", nearest_published(source.sweep.rows, source.cells), ABOUT)
    return section and replace(section, folded=True)


def nearest_published(rows: Sequence[TrialRow], cells: Sequence[Cell]) -> TextTable:
    """Others' numbers for this workload beside our nearest cell, and what differs from it. None where no cell may stand beside it."""
    header = ["published by others", "setting", "their value", "our nearest cell", "our value", "what differs", "source"]
    if not rows:
        return TextTable(header, [])
    lines = []
    for entry in literature_for(rows[0].trial.workload, metric=None):
        done = [
            cell
            for cell in cells
            if not cell.emulated
            and entry.is_of(cell.trial.parameters)
            and entry.may_stand_beside(cell.trial.parameters)
            and _ours(cell, entry) is not None
        ]
        if not done:
            continue
        nearest = min(done, key=lambda cell: len(entry.differences(cell.trial.parameters, _device(cell))))
        extra = f", {entry.extra}" if entry.extra else ""
        batch = f", batch {entry.batch}" if entry.batch is not None else ""
        workers = f", MP-{entry.dataloader_workers}" if entry.dataloader_workers is not None else ""
        theirs = f"{entry.model}, {plural(entry.devices or 1, 'device')}, {entry.precision or '?'}{batch}{workers}{extra}"
        ours = amount(_ours(nearest, entry) or 0.0, entry.unit)
        differs = "; ".join(entry.differences(nearest.trial.parameters, _device(nearest))) or "nothing we know of"
        lines.append([entry.accelerator, theirs, amount(entry.value, entry.unit), nearest.short, ours, differs, entry.source])
    return TextTable(header, lines)


def _ours(cell: Cell, entry: LiteratureValue) -> float | None:
    """Our value of a published metric, in its unit; None where the cell has none."""
    if entry.metric == "speedup":
        ratio = cell.speedup if cell.metric.higher_is_better else None  # a ratio of losses is no speed-up
        return ratio.value if ratio and not ratio.linear else None
    if entry.metric not in OURS:
        return None
    name, unit = OURS[entry.metric]
    if entry.metric == "max_batch_per_device" and cell.trial.parameters.get("batch_size") != "max":
        return None
    value = cell.estimate.value if name == cell.metric.name and cell.estimate is not None else cell.mean(name)  # as the table has it
    return None if value is None else value / unit


def _device(cell: Cell) -> str:
    """The device's own name where the environment tells it, else its kind."""
    return next((str(row.environment["device_name"]) for row in cell.rows if row.environment.get("device_name")), cell.trial.device)
