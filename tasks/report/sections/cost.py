"""Section: what a million samples cost in each cell, where prices are known, and how much energy they take, where it was measured."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.metric import Metric
from experiments.metrics import metric_of
from experiments.stats.estimate import Estimate
from experiments.summary import ENERGY_WINDOW_S
from tasks.analysis.cell import Cell
from tasks.analysis.costs import ENERGY, KWH, RATE, UNPROVEN, CellCost, cost_metric, costs_of, estimate, front
from tasks.report.comparison_table import TextTable
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.tables import without_empty
from tasks.report.text_format import listed, plural, quantity, ratio_with_interval, spread

NAME = "cost"
ABOUT = "Of the measured window alone, without set-up, compilation and evaluation; the intervals are those that repeats show."
OF_COLUMNS = {
    "times cheaper": "x is how many times less a cell costs than its baseline.",
    "front": "On the front: no cell that does the same work is faster without costing more, or cheaper without being slower, by the "
    "measured values; intervals that overlap may put another cell there.",
}


def section(source: ReportSource) -> Section | None:
    table = cost_table(source.cells)
    if not table.rows:
        return None
    known = [word for word in ("cost", "energy") if f"{word} of a million samples" in table.header]
    lines = [*price_lines(source.cells), *(energy_lines(source.cells) if "energy" in known else [])]
    about = " ".join([ABOUT, *(text for column, text in OF_COLUMNS.items() if column in table.header)])
    return Section(NAME, " and ".join(known).capitalize(), [table, *([Bullets(lines)] if lines else [])], about)


def cost_table(cells: Sequence[Cell]) -> TextTable:
    """A row for each cell of which cost or energy of a million samples is known; no row where none is."""
    found = [one for one in costs_of(cells) if one.cost is not None or one.energy is not None]
    fronts = {"cost": front(found, lambda one: one.cost), "energy": front(found, lambda one: one.energy)}
    header = ["cell", "throughput", "cost of a million samples", "times cheaper", "energy of a million samples", "front"]
    return without_empty(TextTable(header, [_row(one, fronts) for one in found], numeric=True))


def _row(one: CellCost, fronts: dict[str, list[CellCost]]) -> list[str]:
    on = [name for name, members in fronts.items() if one in members]
    return [
        one.cell.short,
        amount(one.rate, metric_of(RATE)),
        amount(one.cost, cost_metric(one.currency)),
        "baseline" if one.cell.is_compared_with and one.cost else cheaper_text(one.cheaper),
        amount(one.energy, KWH),
        (", ".join(on) + (f" ({UNPROVEN})" if not one.cell.may_lead(None) else "")) if on else "–",
    ]


def amount(value: Estimate | None, metric: Metric) -> str:
    """0.4213 USD ±1.2 %; a dash for nothing."""
    return f"{quantity(value.value, metric)} {spread(value, metric)}".strip() if value else "–"


def cheaper_text(cheaper: Estimate | None) -> str:
    """x1.26 (1.20–1.31), of how many times less something costs; a dash for nothing."""
    return ratio_with_interval(cheaper) if cheaper else "–"


def energy_lines(cells: Sequence[Cell]) -> list[str]:
    """Of which measured cells the energy is not told, as a trial's window was too short for the devices' counters."""
    without = [cell.short for cell in cells if cell.measured and not cell.emulated and estimate(cell, ENERGY) is None]
    why = f"a trial of each has none: its device has no counter, or its window was under {ENERGY_WINDOW_S:g} s"
    return [f"Energy is not told of {plural(len(without), 'cell')} ({listed(without, 4)}): {why}."] if without else []


def price_lines(cells: Sequence[Cell]) -> list[str]:
    """What the costs are made of: `Price of pool cuda: 2.49 USD per accelerator and hour.` A line for each pool and price."""
    by_price: dict[str, list[str]] = {}
    for cell in cells:
        if cell.trial.price is not None and not cell.emulated:
            price = cell.trial.price.model_copy(update={"units": 1})
            by_price.setdefault(price.text, []).append(cell.trial.pool)
    return [
        f"Price, as pools.yaml had it when the trials were planned: {text} (pool {listed(list(dict.fromkeys(pools)))})."
        for text, pools in by_price.items()
    ]
