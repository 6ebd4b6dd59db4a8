"""Section: what loss parity found of each cell that computes otherwise than what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.analysis.cell import Cell
from tasks.analysis.parity_note import difference, divergence, interval
from tasks.report.comparison_table import TextTable
from tasks.report.section import ReportSource, Section, table_section
from tasks.report.text_format import listed

ABOUT = (
    "Difference of the loss from that of the reference, over the second half of the steps in common, of equal seeds. Proven: within 0.5 %. "
    "Struck: more than that, and more than 1 % of equal trainings show by chance. Would have found: the smallest divergence that would "
    "have been struck with a probability of 90 %. At 1 %: the number of steps at which 1 % would be."
)


def section(source: ReportSource) -> Section | None:
    rates = rates_of(judged(source.cells))
    said = f" All of this is of learning rate{'s' * (len(rates) > 1)} {listed(rates)}, and says nothing of higher ones." if rates else ""
    return table_section("loss_parity", "Loss parity", parity_table(source.cells), f"{ABOUT}{said}")


def rates_of(cells: Sequence[Cell]) -> list[str]:
    """The learning rates of these cells, from the lowest up; none of what does not train."""
    found = {rate for cell in cells if cell.trains and isinstance(rate := cell.trial.parameters.get("learning_rate"), int | float)}
    return [f"{rate:g}" for rate in sorted(found)]


def judged(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each comparison: cells that compute alike share one."""
    return list({id(cell.parity): cell for cell in reversed(cells) if cell.parity is not None}.values())[::-1]


def parity_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each comparison."""
    header = ["cell", "loss parity", "difference", "90 % interval", "would have found", "steps", "at 1 %", "seeds", "note"]
    rows = []
    for cell in judged(cells):
        parity = cell.parity
        assert parity is not None
        known = parity.smallest is not None
        rows.append(
            [
                cell.short,
                str(parity.status),
                difference(parity) if known else "–",
                interval(parity) if known else "–",
                divergence(parity),
                str(parity.steps or "–"),
                str(parity.recommended or "–"),
                f"{parity.pairs} of {parity.seeds}" if parity.seeds else "–",
                cell.parity_note or "",
            ]
        )
    return TextTable(header, rows)
