"""What a million samples cost in two sweeps, beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.stats.estimate import Estimate
from tasks.analysis.cell import Cell
from tasks.analysis.costs import KWH, RATE, CellCost, cheaper, cost_metric, costs_of
from tasks.report.comparison_table import TextTable
from tasks.report.sections.cost import amount, cheaper_text
from tasks.report.tables import without_empty

OF_COSTS = (
    "Of the measured window alone, at the prices that the pools of each sweep had when it was planned. The ratio is how many times less B "
    "costs than A: its interval is that of the rates."
)


def costs_beside(pairs: Sequence[tuple[Cell, Cell, Estimate | None]]) -> TextTable:
    """(a cell in A, in B, how many times faster B is): a row for each cell of which a cost or an energy is known."""
    rows = []
    for a, b, faster in pairs:
        [in_a], [in_b] = costs_of([a]), costs_of([b])
        if any(known is not None for one in (in_a, in_b) for known in (one.cost, one.energy)):
            less = cheaper_text(times_cheaper(a, b, faster))
            rows.append([a.short, *_cost(in_a, in_b), less, amount(in_a.energy, KWH), amount(in_b.energy, KWH)])
    return without_empty(
        TextTable(["cell", "cost, A", "cost, B", "B times cheaper, 95 % interval", "energy, A", "energy, B"], rows, numeric=True)
    )


def times_cheaper(a: Cell, b: Cell, faster: Estimate | None) -> Estimate | None:
    """How many times less a million samples cost in B, which is `faster` by this ratio of rates; None where that is not known."""
    priced = all(one.cost is not None for one in costs_of([a, b]))
    return cheaper(faster, b, a) if faster is not None and b.metric.name == RATE and priced else None


def _cost(*sides: CellCost) -> list[str]:
    return [amount(one.cost, cost_metric(one.currency)) for one in sides]
