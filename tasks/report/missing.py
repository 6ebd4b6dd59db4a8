"""Cells without a value, and why they have none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.analysis.cell import Cell
from tasks.report.text_format import listed, plural

_DID = {
    "ok": ("ended without the metric",) * 2,
    "does_not_fit": ("does not fit in device memory", "do not fit in device memory"),
    "diverged": ("diverged",) * 2,
    "unsupported": ("is unsupported where it ran", "are unsupported where they ran"),
    "hang": ("hung",) * 2,
    "crashed": ("crashed",) * 2,
    "infra": ("was lost to the infrastructure", "were lost to the infrastructure"),
    "cancelled": ("was cancelled", "were cancelled"),
    "to do": ("has not run yet", "have not run yet"),
    "unreadable": ("has files that cannot be read", "have files that cannot be read"),
}


@dataclass(frozen=True)
class Missing:
    """Cells without a value that ended alike."""

    outcome: str
    cells: Sequence[Cell]

    @property
    def reasons(self) -> list[str]:
        """The different reasons of its cells, in their order."""
        return list(dict.fromkeys(cell.reason for cell in self.cells if cell.reason))

    @property
    def sentence(self) -> str:
        reasons = self.reasons
        why = f": {reasons[0]}" if len(reasons) == 1 else f": {len(reasons)} different reasons, see outcomes" if reasons else ""
        words = _DID.get(self.outcome, ("did not end ok", "did not end ok"))
        did = words[len(self.cells) > 1]
        return f"{plural(len(self.cells), 'cell')} {did} ({listed([cell.short for cell in self.cells], 4)}){why}"


def find_missing(cells: Sequence[Cell]) -> list[Missing]:
    """Cells without a value by outcome, in the order met."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.estimate is None:
            groups.setdefault(cell.outcome, []).append(cell)
    return [Missing(outcome, group) for outcome, group in groups.items()]
