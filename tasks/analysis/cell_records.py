"""The cells of a sweep as plain data, a record each: the values, intervals and verdicts of its report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.metric import Scale
from experiments.price import COST
from experiments.stats.estimate import Estimate
from experiments.trial import Scalar, Trial
from tasks.analysis.cell import Cell
from tasks.analysis.costs import ENERGY_OF_A_MILLION, costs_of

_SIMULATED = "simulated"  # in the value of a parameter: arithmetic that the device does not have, such as fp8_simulated


def cell_records(sweep_id: str, cells: Sequence[Cell]) -> list[dict[str, Scalar]]:
    """A record for each cell, in order.

    estimate, low, high: the metric in its unit with its 95 % interval; null where a single repeat has none. ratio, ratio_low, ratio_high:
    how many times better than the baseline, > 1 is better; where `compared_by` is `difference`, by how much better, > 0 is better. verdict:
    faster, slower, same or undecided; null for a baseline and for what is not compared. decided_after: the round whose look decided it.
    claimed: whether a lead may be claimed, as loss parity has it. cost_per_million_samples: in `currency`;
    energy_kwh_per_million_samples: kWh; both with _low and _high, there only where some cell has them. `axis.<name>`: the axes.
    """
    records = [_record(sweep_id, cell) for cell in cells]
    costs = _costs(cells)
    return [{**record, **cost} for record, cost in zip(records, costs, strict=True)]


def _record(sweep_id: str, cell: Cell) -> dict[str, Scalar]:
    compared_by = "ratio" if cell.metric.scale is Scale.LOG else "difference"
    return {
        "sweep_id": sweep_id,
        "suite": cell.trial.suite,
        "workload": cell.trial.workload,
        "cell": cell.trial.cell,
        "name": cell.name,
        "emulated": cell.emulated,
        "simulated": simulated(cell.trial),
        "outcome": cell.outcome,
        "reason": cell.reason,
        "repeats": len(cell.measured),
        "metric": cell.metric.name,
        "unit": cell.metric.unit,
        "better": str(cell.metric.direction),
        **interval_record("", cell.estimate, "estimate"),
        "baseline": cell.baseline.trial.cell if cell.baseline else None,
        "compared_by": compared_by if cell.speedup else None,
        **interval_record("ratio_", cell.speedup, "ratio"),
        "verdict": str(cell.verdict) if cell.verdict else None,
        "why_undecided": cell.why_undecided,
        "decided_after": cell.decided_after,
        "claimed": cell.claimed,
        "loss_parity": str(cell.parity.status) if cell.parity else None,
        "disturbed": cell.disturbed,
        **{f"axis.{name}": value for name, value in cell.axes.items()},
    }


def interval_record(prefix: str, value: Estimate | None, name: str) -> dict[str, Scalar]:
    """The value and the ends of its interval; null where there is none."""
    known = value is not None and math.isfinite(value.se)
    low, high = (value.low, value.high) if value is not None and known else (None, None)
    return {name: value.value if value else None, f"{prefix}low": low, f"{prefix}high": high}


def _costs(cells: Sequence[Cell]) -> list[dict[str, Scalar]]:
    found = costs_of(cells)
    records: list[dict[str, Scalar]] = [{} for _ in cells]
    if any(one.cost for one in found):
        for one, record in zip(found, records, strict=True):
            record.update(interval_record(f"{COST}_", one.cost, COST), currency=one.currency or None)
    if any(one.energy for one in found):
        for one, record in zip(found, records, strict=True):
            record.update(interval_record(f"{ENERGY_OF_A_MILLION}_", one.energy, ENERGY_OF_A_MILLION))
    return records


def simulated(trial: Trial) -> str | None:
    """What of a trial's arithmetic was simulated, such as `precision: fp8_simulated`: its rate is not that of the real arithmetic."""
    named = _named_simulated(trial.parameters)
    return ", ".join(f"{name}: {value}" for name, value in named.items()) or None


def _named_simulated(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if isinstance(value, str) and _SIMULATED in value}
