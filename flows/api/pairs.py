"""Two sweeps beside each other as plain data."""

from __future__ import annotations

from experiments.metric import Direction
from experiments.trial import Scalar
from tasks.analysis.cell_records import interval_record
from tasks.report.compare_sweeps import Comparison, Pair


def pair_records(comparison: Comparison) -> list[dict[str, Scalar]]:
    """A record for each cell that both have: a and b with their 95 % intervals in `unit`; ratio: how many times better B is, > 1 is better,
    or by how much, > 0 is better, where `compared_by` is `difference`; verdict: null where a side has no value, as `outcome_a`, `outcome_b`
    say; also_differs: what else differs between the two sides."""
    return [_record(pair) for pair in comparison.pairs]


def _record(pair: Pair) -> dict[str, Scalar]:
    metric = pair.b.metric
    return {
        "name": pair.a.name,
        "metric": metric.name,
        "unit": metric.unit,
        "better": str(metric.direction) if metric.direction is not Direction.NEITHER else None,
        **interval_record("a_", pair.a.estimate, "a"),
        **interval_record("b_", pair.b.estimate, "b"),
        "outcome_a": pair.a.outcome,
        "outcome_b": pair.b.outcome,
        "compared_by": None if pair.ratio is None else "difference" if pair.ratio.linear else "ratio",
        **interval_record("ratio_", pair.ratio, "ratio"),
        "verdict": str(pair.verdict) if pair.verdict else None,
        "why_undecided": pair.why_undecided,
        "also_differs": ", ".join(pair.differs) or None,
        **{f"axis.{name}": value for name, value in pair.a.axes.items()},
    }
