"""What a million samples cost in a cell, in money and in energy, with intervals, and which cells no other beats in both rate and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from experiments.metric import Metric
from experiments.metrics import metric_of
from experiments.price import COST, Price, kwh_per_million
from experiments.stats.estimate import Estimate
from experiments.stats.repeats import repeats_interval
from tasks.analysis.cell import Cell, estimate_of, is_number
from tasks.analysis.same_work import groups_of_work

ENERGY = "energy_j_per_sample"
ENERGY_OF_A_MILLION = "energy_kwh_per_million_samples"  # in records and JSON
RATE = "throughput"
UNPROVEN = "loss parity unproven"  # of a cell on a front: nothing is claimed of its rate yet
KWH = replace(metric_of(ENERGY), unit="kWh", short="energy of a million samples")  # as it is printed
_AS_RATE = (RATE, COST)  # their logarithms differ by a constant, so what past sweeps know of the spread of one holds for the other


@dataclass(frozen=True, eq=False)
class CellCost:
    """A cell and what a million samples cost in it. `cost`: in the currency of `price`; `energy`: kWh; None where it is not known.
    `rate`: None where neither is.

    `cheaper`: how many times less it costs than its baseline, > 1 is less; None where that is not known.
    """

    cell: Cell
    rate: Estimate | None
    cost: Estimate | None
    energy: Estimate | None
    price: Price | None
    cheaper: Estimate | None

    @property
    def currency(self) -> str:
        return self.price.currency if self.price else ""


def costs_of(cells: Sequence[Cell]) -> list[CellCost]:
    """Of each cell, in order, what is known. Nothing of emulated cells."""
    return [_cost_of(cell) for cell in cells]


def _cost_of(cell: Cell) -> CellCost:
    cost, energy = estimate(cell, COST), estimate(cell, ENERGY)
    rate = estimate(cell, RATE) if cost is not None or energy is not None else None
    price = cell.trial.price if cost is not None else None
    in_kwh = kwh_per_million(1.0)
    if energy is not None:
        energy = replace(energy, value=energy.value * in_kwh, low=energy.low * in_kwh, high=energy.high * in_kwh)
    return CellCost(cell, rate, cost, energy, price, _cheaper(cell) if price else None)


def estimate(cell: Cell, name: str) -> Estimate | None:
    """A metric of a cell other than its own, over the same trials; None where one of them does not have it, and for emulated cells.

    The metric is on the logarithmic scale. The interval is that of the repeats, as of the cell's own metric.
    """
    rows = cell.measured
    known = all(is_number(row.summary.get(name)) and (row.summary[name] or 0) > 0 for row in rows)
    if not rows or not known or cell.emulated:
        return None
    spread = cell.known if name == cell.metric.name or {name, cell.metric.name} <= set(_AS_RATE) else None
    return repeats_interval([estimate_of(row, metric_of(name)) for row in rows], known=spread)


def _cheaper(cell: Cell) -> Estimate | None:
    """Its speed-up over the baseline by what both pay: cost over cost is price over price, divided by rate over rate. So the interval is
    that of the speed-up. None of another metric than the rate or the cost, and for other currencies."""
    base = cell.baseline
    if base is None or base is cell or cell.speedup is None or cell.speedup.linear:
        return None
    if cell.metric.name == COST:
        return cell.speedup
    return cheaper(cell.speedup, cell, base) if cell.metric.name == RATE else None


def cheaper(faster: Estimate, cell: Cell, other: Cell) -> Estimate | None:
    """How many times less a million samples cost in `cell` than in `other`, of which it is `faster` by a ratio of rates.

    None where a price is not known, or is in another currency.
    """
    mine, theirs = cell.trial.price, other.trial.price
    if mine is None or theirs is None or mine.currency != theirs.currency:
        return None
    factor = theirs.trial_per_hour / mine.trial_per_hour
    return replace(faster, value=faster.value * factor, low=faster.low * factor, high=faster.high * factor)


def cost_metric(currency: str) -> Metric:
    """The cost of a million samples, as it is printed."""
    return replace(metric_of(COST), unit=currency)


def front(found: Sequence[CellCost], amount: Callable[[CellCost], Estimate | None]) -> list[CellCost]:
    """The Pareto front: those that no other cell beats, by the measured values, in one of rate and amount without losing in the other.

    Of cells that do the same work in one currency; where there are several such groups, the front of each. One that is alone in its group
    has nobody to beat and is on none. A cell whose loss is struck is on none and takes no other off it: nothing may be claimed of its rate.
    """
    by_cell = {id(one.cell): one for one in found}
    groups: dict[tuple[int, str], list[CellCost]] = {}
    for number, cells in enumerate(groups_of_work([one.cell for one in found]).values()):
        for cell in cells:
            one = by_cell[id(cell)]
            if one.rate is not None and amount(one) is not None and not cell.struck:
                groups.setdefault((number, one.currency), []).append(one)
    on_it = {id(one) for group in groups.values() if len(group) > 1 for one in _undominated(group, amount)}
    return [one for one in found if id(one) in on_it]


def _undominated(group: Sequence[CellCost], amount: Callable[[CellCost], Estimate | None]) -> list[CellCost]:
    """From the cheapest on, the fastest of equal cost first: whoever is faster than all before, and whoever equals such a one in both."""
    points = []
    for one in group:
        rate, cost = one.rate, amount(one)
        assert rate is not None and cost is not None  # by the caller
        points.append((cost.value, -rate.value, one))
    best: list[tuple[float, float, CellCost]] = []
    for point in sorted(points, key=lambda point: point[:2]):
        if not best or point[1] < best[-1][1] or point[:2] == best[-1][:2]:
            best.append(point)
    return [one for _, _, one in best]
