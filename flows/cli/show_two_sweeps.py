"""What `sweep compare` prints: two sweeps beside each other."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.text import Text

from experiments.config.errors import UserError
from experiments.price import COST
from experiments.stats.estimate import Estimate
from flows.cli.show_cost import print_costs
from flows.cli.tables import make_table
from tasks.analysis.cell import Cell
from tasks.analysis.costs import ENERGY_OF_A_MILLION, costs_of
from tasks.report.compare_sweeps import CompareError, Comparison, Pair, write_comparison
from tasks.report.costs_beside import times_cheaper
from tasks.sweep.store import SweepStore, list_sweeps

_COLOURS = {"faster": "green", "slower": "red"}  # of verdicts; whatever is not decided is dim
_RATIO, _VERDICT = 3, 4  # columns of the comparison's table


def print_two_sweeps(out: Console, comparison: Comparison, b: SweepStore) -> None:
    """Every cell that both have, and how B stands to A; written as a page into B's folder too."""
    out.print(comparison.headline, highlight=False)
    if comparison.pairs:
        table = make_table(*comparison.table.header)
        for pair, row in zip(comparison.pairs, comparison.table.rows, strict=True):
            style = _COLOURS.get(pair.word, "dim")
            table.add_row(*(Text(text, style=style if place in (_RATIO, _VERDICT) else "") for place, text in enumerate(row)))
        out.print(table)
        print_costs(out, comparison.costs.header, comparison.costs.rows)
    for remark in comparison.remarks:
        out.print(remark, highlight=False, markup=False, soft_wrap=True)
    _, html = write_comparison(comparison, b.dir)
    out.print(f"report: {html}", highlight=False, soft_wrap=True)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Values in the metric's unit, with 95 % intervals; an end that is not known is null. `ratio`: of B over A, above 1 is better; where
    `difference` is true it is by how much B is better. `times_cheaper`: how many times less a million samples cost in B; null where that is
    not known."""
    return {
        "a": comparison.a,
        "b": comparison.b,
        "headline": comparison.headline,
        "smallest_effect": comparison.minimum,
        "across_pools": comparison.across_pools,
        "cells": [_pair_json(pair) for pair in comparison.pairs],
        "only_a": [cell.name for cell in comparison.only_a],
        "only_b": [cell.name for cell in comparison.only_b],
        "remarks": comparison.remarks,
        "damaged": list(comparison.damage),
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    metric = pair.b.metric
    return {
        "name": pair.a.name,
        "values": dict(pair.a.axes),
        "metric": metric.name,
        "unit": metric.unit,
        "a": _cell_json(pair.a),
        "b": _cell_json(pair.b),
        "ratio": _estimate_json(pair.ratio),
        "difference": pair.ratio is not None and pair.ratio.linear,
        "verdict": str(pair.verdict) if pair.verdict else None,
        "said": pair.word,
        "why_undecided": pair.why_undecided,
        "times_cheaper": _estimate_json(times_cheaper(pair.a, pair.b, pair.ratio)),
        "also_differs": list(pair.differs),
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    """The value; where they are known, what a million samples cost, in `currency`, and the energy that they take, kWh."""
    [cost] = costs_of([cell])
    known = {COST: _estimate_json(cost.cost), "currency": cost.currency or None} if cost.cost else {}
    known |= {ENERGY_OF_A_MILLION: _estimate_json(cost.energy)} if cost.energy else {}
    return {"outcome": cell.outcome, "trials": len(cell.measured), **(_estimate_json(cell.estimate) or {}), **known}


def _estimate_json(estimate: Estimate | None) -> dict[str, float | None] | None:
    """None where there is none; ends that are not finite become null."""
    if estimate is None:
        return None
    known = math.isfinite(estimate.se)
    low, high = (end if known and math.isfinite(end) else None for end in (estimate.low, estimate.high))
    return {"value": estimate.value, "low": low, "high": high}


def too_few(named: str | None) -> UserError:
    """What to say where two sweeps were not named: which there are, and the command that compares the two newest."""
    needs = "a comparison needs two sweeps, A and what is compared with it, B"
    sweeps = list_sweeps()
    if len(sweeps) < 2:
        here = f"there is only {sweeps[0]}" if sweeps else "there is none yet"
        again = sweeps[0].rsplit("-", 3)[0] if sweeps else "bridgetower"
        return CompareError(f"{needs}, and {here}: `sweep run {again}` makes another; `sweep ab` measures two settings or commits in turns")
    first = next(one for one in sweeps if one != sweeps[0]) if named in (None, "last", sweeps[0]) else named
    command = f"sweep compare {first} {sweeps[0]}"
    return CompareError(f"{needs}: `{command}`, for one; `sweep list` shows all {len(sweeps)}")
