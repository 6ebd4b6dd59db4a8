"""Where the peak goes: from the FLOP/s that the data sheet promises down to those that the traced steps reached, in drops that add up.

Each drop says what the device would have reached without it, and without all that come after it: at its actual clock; with nothing but
the matrix products at the rate that their shapes attain in a bare loop; at the rate that they had; with attention beside them; and so on
down to what it reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import LEFT_OUT, TrialRow

CLOCK, SHAPES, MATRIX = "clock", "matrix shapes", "matrix products"
ATTENTION, OTHER = "attention", "other kernels"
LAUNCHES, ALLOCATOR, IDLE = "idle: launches", "idle: allocator", "idle: gaps"
COMMUNICATION, DATA = "exposed communication", "data wait"
DROPS = (CLOCK, SHAPES, MATRIX, ATTENTION, OTHER, LAUNCHES, ALLOCATOR, IDLE, COMMUNICATION, DATA)  # in their order
# Where a drop's time stands in a rank's record (StepParts in cluster/worker/measure/trace_parts.py)
_TIMES = {
    OTHER: ("other_s", "copies_s"),
    LAUNCHES: ("launch_s",),
    ALLOCATOR: ("allocator_s",),  # of trials before 2026-11-25 within the launches
    IDLE: ("idle_s",),
    COMMUNICATION: ("communication_s",),
    DATA: ("data_wait_s",),
}
LEAST_COVERED = 0.5  # of the matrix products' time: a rate that is of less says nothing of their shapes
SLOWED = 0.85  # of the MFU of the same trial's window: traced steps that reached less are another picture than untraced ones
_TOLERANCE = 1.02  # of the clock, which is a mean over the window and not of the traced steps


@dataclass(frozen=True)
class Waterfall:
    """Of one trial, the mean over its ranks. All shares are of the data sheet's peak; `drops` and `reached` add up to 1.

    peak: FLOP/s of one device. drops: by the names in DROPS; below 0 for a gain, such as a clock above the data sheet's. None: not known,
    and then within that of the matrix products. matrix_rate: FLOP/s of the matrix products while they ran; of attention too, where its
    drop is None. covered: the share of the matrix products' time of which the rate in a bare loop was measured. attainable_rate: that rate,
    in which the rest counts at the rate that it had; None where less than LEAST_COVERED is covered. product_flops: of all that have a
    shape, over the FLOPs that the model takes of them; above 1 where some is done twice.
    """

    peak: float
    drops: Mapping[str, float | None]
    reached: float
    matrix_rate: float
    attainable_rate: float | None = None
    covered: float | None = None
    product_flops: float | None = None


def traced(cell: Cell) -> TrialRow | None:
    """The cell's first repeat that ended ok with traced steps of which the parts are known; an undisturbed one, where there is one."""
    rows = [row for row in cell.rows if row.outcome == "ok" and row.profile and row.profile.get("ranks")]
    return next((row for row in rows if not row.disturbed), rows[0] if rows else None)


def traced_ranks(cell: Cell) -> Sequence[Mapping[str, float]]:
    """What each rank of the cell's traced repeat did in a step: StepParts in cluster/worker/measure/trace_parts.py. Empty without one."""
    row = traced(cell)
    return row.profile["ranks"] if row is not None and row.profile else ()


def missing_ranks(cell: Cell) -> Mapping[int, str | None]:
    """The ranks of the cell's traced repeat whose traces told nothing, and why; None where that was not recorded."""
    row = traced(cell)
    if row is None or not row.profile:
        return {}
    why = {one["rank"]: one["why"] for one in row.profile.get("missing_ranks") or ()}
    return {rank: why.get(rank) for rank in range(cell.devices) if rank not in {one["rank"] for one in row.profile["ranks"]}}


def why_left_out(cell: Cell) -> str | None:
    """Why its traced steps, of which there are some on a GPU, do not tell what they reached; None where they do, or there are none."""
    if traced(cell) is not None:
        return None
    return next((row.profile[LEFT_OUT] for row in cell.rows if row.outcome == "ok" and row.profile and row.profile.get(LEFT_OUT)), None)


def waterfall_of(cell: Cell) -> Waterfall | None:
    """The waterfall of the cell's traced repeat, at the clock that it had in its measured window. As `waterfall`."""
    row = traced(cell)
    if row is None or row.profile is None:
        return None
    clock = row.summary.get("clock_mean_mhz")
    return waterfall(row.profile, float(clock) if clock else None)


def slower(cell: Cell, found: Waterfall) -> float | None:
    """How many times as long as a step of the window a traced one of the cell's waterfall took, by the MFU of both; None where traced steps
    reached SLOWED of that or more, and where it is not known."""
    row = traced(cell)
    mfu = row.summary.get("mfu") if row is not None else None
    return float(mfu) / found.reached if mfu is not None and found.reached < SLOWED * float(mfu) else None


def waterfall(profile: Mapping[str, Any], clock_mhz: float | None) -> Waterfall | None:
    """The waterfall of traced steps; None where the trace has no kernels, or FLOPs or peak are not known.

    `profile`: of a TrialRow. `clock_mhz`: the mean clock that the device had. Raises ValueError for a device that would have multiplied
    faster than it can: then the trace has products under names that nobody knows.
    """
    ranks, peak, flops = profile.get("ranks"), profile.get("peak_flops"), profile.get("flops_per_sample")
    if not ranks or not peak or not flops:
        return None
    base = profile.get("peak_clock_mhz")
    at_clock = clock_mhz / base if clock_mhz and base else None
    each = [_of_rank(rank, flops, profile.get("attention_flops_per_sample"), peak) for rank in ranks]
    drops = {name: _mean([one.drops[name] for one in each]) for name in (MATRIX, *DROPS[3:])}
    top = 1.0 if at_clock is None else at_clock
    covered, product_flops = _mean([one.covered for one in each]), _mean([one.product_flops for one in each])
    attainable = _mean([one.attainable_rate for one in each]) if covered is None or covered >= LEAST_COVERED else None
    rate = math.fsum(one.matrix_rate for one in each) / len(each)
    if rate > peak * max(1.0, top) * _TOLERANCE:
        raise ValueError(
            f"its matrix products would have run at {rate / 1e12:.4g} TFLOP/s of {peak * top / 1e12:.4g}: "
            "the trace has some under names that are not known"
        )
    shapes = None if attainable is None else top - attainable / peak
    drops[MATRIX] = (drops[MATRIX] or 0.0) - (1 - top) - (shapes or 0.0)
    reached = math.fsum(one.reached for one in each) / len(each)
    first = {CLOCK: None if at_clock is None else 1 - at_clock, SHAPES: shapes}
    return Waterfall(peak, first | drops, reached, rate, attainable, covered, product_flops)


def _of_rank(rank: Mapping[str, float], flops: float, of_attention: float | None, peak: float) -> Waterfall:
    """Of one rank, all of the way from the peak to the rate of its matrix products in their drop.

    Time that is not spent on products costs what they would have done in it; attention costs that less what it did itself.
    """
    step = rank["step_s"]
    done = flops * rank["samples"]
    attention = rank["attention_s"]
    apart = of_attention is not None or attention == 0  # without kernels of its own attention is among the matrix products
    done_apart = (of_attention or 0.0) * rank["samples"] if attention else 0.0
    multiplying = rank["matrix_s"] + (0.0 if apart else attention)
    if not multiplying > 0:
        raise ValueError("the trace has no matrix products under names that are known")
    of_products = done - (done_apart if apart else 0.0)
    rate = of_products / multiplying
    drops: dict[str, float | None] = {MATRIX: 1 - rate / peak}
    drops[ATTENTION] = (rate * attention - done_apart) / step / peak if apart else None
    for name, parts in _TIMES.items():
        drops[name] = rate * math.fsum(rank[part] for part in parts) / step / peak if rank.keys() >= {*parts} else None
    attainable, covered, product_flops = None, None, None
    if rank.get("attainable_s"):
        attainable = rate * multiplying / (multiplying - rank["matrix_s"] + rank["attainable_s"])
        covered = rank["covered_s"] / multiplying
        product_flops = rank["product_flops"] / of_products if "product_flops" in rank else None
    return Waterfall(peak, drops, done / step / peak, rate, attainable, covered, product_flops)


def _mean(values: Sequence[float | None]) -> float | None:
    """None where one is unknown."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if len(known) == len(values) else None
