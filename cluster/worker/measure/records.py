"""Arithmetic on timings. No clock, no torch: times come in as arguments, and data that cannot be is an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.step_record import PARTS, TOTAL, StepRecord, StepTiming

RESOLUTION_S = 1e-5  # device events are read as 32-bit milliseconds: sums of parts may differ by this much


class ImpossibleData(ValueError):
    """A measurement that cannot have happened."""


def step_record(timing: StepTiming, *, world_size: int, measured: bool) -> dict[str, Any]:
    """The journal's `step` record without its time: seconds, `samples` over all ranks. Raises ImpossibleData."""
    times = {name: float(getattr(timing, name)) for name in (*PARTS, TOTAL)}
    for name, seconds in times.items():
        if not math.isfinite(seconds) or seconds < 0:
            raise ImpossibleData(f"step {timing.step}: {name} is {seconds}")
    total = times.pop(TOTAL)
    if total == 0 or timing.samples < 1:
        raise ImpossibleData(f"step {timing.step}: {timing.samples} samples in {total} s")
    if abs(sum(times.values()) - total) > max(RESOLUTION_S * len(times), 1e-3 * total):
        raise ImpossibleData(f"step {timing.step}: its parts take {sum(times.values()):.6f} s, all of it {total:.6f} s")
    record = StepRecord(**{**vars(timing), "samples": timing.samples * world_size}, measured=measured)
    return {name: value for name, value in record.values().items() if name != "t"}  # the journal's line has it


@dataclass(frozen=True)
class RankWindow:
    """One rank's measured window: from synchronised start to synchronised end."""

    rank: int
    samples: int
    wall_s: float
    peak_memory_bytes: int | None = None
    alloc_retries: int | None = None
    energy_j: float | None = None  # of this rank's device


def window_record(ranks: Sequence[RankWindow]) -> dict[str, Any]:
    """The journal's `window` record from all ranks: samples summed, wall time and peak memory of the worst, power of all devices together.

    Raises ImpossibleData: no ranks, a rank twice or missing, no samples, no time, energy that ran backwards.
    """
    if sorted(window.rank for window in ranks) != list(range(len(ranks))) or not ranks:
        raise ImpossibleData(f"windows of ranks {[window.rank for window in ranks]}")
    for window in ranks:
        if window.samples < 1 or not math.isfinite(window.wall_s) or window.wall_s <= 0:
            raise ImpossibleData(f"rank {window.rank}: {window.samples} samples in {window.wall_s} s")
        if window.energy_j is not None and window.energy_j < 0:
            raise ImpossibleData(f"rank {window.rank}: {window.energy_j} J")
    wall = max(window.wall_s for window in ranks)
    energy = _sum([window.energy_j for window in ranks])
    return {
        "wall_s": wall,
        "samples": sum(window.samples for window in ranks),
        "ranks": [{name: value for name, value in asdict(window).items() if name in ("rank", "samples", "wall_s")} for window in ranks],
        "peak_memory_bytes": max((value for window in ranks if (value := window.peak_memory_bytes) is not None), default=None),
        "alloc_retries": _sum([window.alloc_retries for window in ranks]),
        "energy_j": energy,
        "mean_power_w": None if energy is None else energy / wall,
    }


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum; None if any value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
