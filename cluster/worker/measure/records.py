"""Arithmetic on timings. No clock, no torch: times come in as arguments, and data that cannot be is an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

PARTS = ("data_wait_s", "h2d_s", "forward_backward_s", "optimizer_s")
RESOLUTION_S = 1e-5  # device events are read as 32-bit milliseconds: sums of parts may differ by this much


class ImpossibleData(ValueError):
    """A measurement that cannot have happened."""


class Timing(Protocol):
    """What a step clock tells about a step; see cluster.devices.clock.StepTiming."""

    @property
    def step(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def ended_at(self) -> float: ...
    @property
    def data_wait_s(self) -> float: ...
    @property
    def h2d_s(self) -> float: ...
    @property
    def forward_backward_s(self) -> float: ...
    @property
    def optimizer_s(self) -> float: ...
    @property
    def total_s(self) -> float: ...


def step_record(timing: Timing, *, world_size: int, measured: bool) -> dict[str, Any]:
    """The journal's `step` record: seconds, `samples` over all ranks. Raises ImpossibleData."""
    parts = {name: float(getattr(timing, name)) for name in PARTS}
    for name, seconds in {**parts, "total_s": timing.total_s}.items():
        if not math.isfinite(seconds) or seconds < 0:
            raise ImpossibleData(f"step {timing.step}: {name} is {seconds}")
    if timing.total_s == 0 or timing.samples < 1:
        raise ImpossibleData(f"step {timing.step}: {timing.samples} samples in {timing.total_s} s")
    if abs(sum(parts.values()) - timing.total_s) > max(RESOLUTION_S * len(parts), 1e-3 * timing.total_s):
        raise ImpossibleData(f"step {timing.step}: its parts take {sum(parts.values()):.6f} s, all of it {timing.total_s:.6f} s")
    return {
        "step": timing.step,
        "measured": measured,
        "loss": timing.loss,
        "samples": timing.samples * world_size,
        **parts,
        "total_s": timing.total_s,
    }


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
