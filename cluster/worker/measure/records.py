"""Build the journal's step and window records from timings. Uses no clock and no torch. Impossible measurements raise an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.step_record import PARTS, TOTAL, StepRecord, StepTiming

RESOLUTION_S = 1e-5  # s; device events are 32-bit milliseconds, so a sum of parts may differ by this much


class ImpossibleData(ValueError):
    """An impossible measurement, such as a negative or non-finite time."""


def step_record(timing: StepTiming, *, world_size: int, measured: bool) -> dict[str, Any]:
    """The journal's `step` record without `t`: times in seconds, `samples` summed over all ranks.

    Raises ImpossibleData for a negative or non-finite time (of the parts, their total or the loader's), no samples, no time, or parts that
    do not add up to the total within rounding.
    """
    times = {name: float(getattr(timing, name)) for name in (*PARTS, TOTAL)}
    for name, seconds in times.items():
        if not math.isfinite(seconds) or seconds < 0:
            raise ImpossibleData(f"step {timing.step}: {name} is {seconds}")
    if timing.loader_wait_s is not None and not 0 <= timing.loader_wait_s < math.inf:
        raise ImpossibleData(f"step {timing.step}: loader_wait_s is {timing.loader_wait_s}")
    total = times.pop(TOTAL)
    if total == 0 or timing.samples < 1:
        raise ImpossibleData(f"step {timing.step}: {timing.samples} samples in {total} s")
    if abs(sum(times.values()) - total) > max(RESOLUTION_S * len(times), 1e-3 * total):
        raise ImpossibleData(f"step {timing.step}: its parts take {sum(times.values()):.6f} s, all of it {total:.6f} s")
    record = StepRecord(**{**vars(timing), "samples": timing.samples * world_size}, measured=measured)
    return {name: value for name, value in record.values().items() if name != "t"}  # the journal adds it


@dataclass(frozen=True)
class RankWindow:
    """One rank's measured window, from the common start of all ranks to the end of its device's work.

    `wall_s`: of time.perf_counter, s. `left_out_s`: what steps took that count in no rate, s, since torch compiled in them. `data_wait_s`:
    how long its device waited for its host in the others, s.
    """

    rank: int
    samples: int
    wall_s: float
    peak_memory_bytes: int | None = None
    alloc_retries: int | None = None
    energy_j: float | None = None  # of this rank's device
    left_out_s: float = 0.0
    data_wait_s: float = 0.0


_OF_RANK = ("rank", "samples", "wall_s", "left_out_s", "data_wait_s")


def window_record(ranks: Sequence[RankWindow]) -> dict[str, Any]:
    """The journal's `window` record from all ranks: samples and energy (J) summed, the longest wall time (s), the largest peak memory.

    Raises ImpossibleData if a rank is missing or occurs twice, if a rank has no samples or no time, or if an energy is negative.
    """
    if sorted(window.rank for window in ranks) != list(range(len(ranks))) or not ranks:
        raise ImpossibleData(f"windows of ranks {[window.rank for window in ranks]}")
    for window in ranks:
        if window.samples < 1 or not math.isfinite(window.wall_s) or window.wall_s <= 0:
            raise ImpossibleData(f"rank {window.rank}: {window.samples} samples in {window.wall_s} s")
        if window.energy_j is not None and window.energy_j < 0:
            raise ImpossibleData(f"rank {window.rank}: {window.energy_j} J")
    return {
        "wall_s": max(window.wall_s for window in ranks),
        "samples": sum(window.samples for window in ranks),
        "ranks": [{name: value for name, value in asdict(window).items() if name in _OF_RANK} for window in ranks],
        "peak_memory_bytes": max((value for window in ranks if (value := window.peak_memory_bytes) is not None), default=None),
        "alloc_retries": _sum([window.alloc_retries for window in ranks]),
        "energy_j": _sum([window.energy_j for window in ranks]),
    }


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum; None if any value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
