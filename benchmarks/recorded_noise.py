"""Nights that were measured (docs/results/nightly-cpu), as noise: log values around each cell's level, its planted change taken out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int_]

RECORDED = Path("docs/results/nightly-cpu/steps.parquet")
PLANTED = "2026-11-15"  # the first night with the planted commit, which makes one cell slower (docs/results/nightly-cpu/README.md)
PLANTED_IN = ("synthetic", "history")  # suite and role of that cell; of several it is the narrowest (nights_cpu_page.WIDTH_OF_PLANTED)


@dataclass(frozen=True)
class RecordedNights:
    """Level of each kind of cell on each night (kinds, nights), its trials around it (kinds, nights, rounds), and the same of the canary.

    NaN where a kind was not measured. The first kind was measured every night.
    """

    level: Array
    around: Array
    canary_level: Array
    canary_around: Array

    @property
    def kinds(self) -> int:
        return self.level.shape[0]

    @property
    def nights(self) -> int:
        return self.level.shape[1]

    def kind(self, kind: Index, night: Index) -> Index:
        """The kind of cell to draw: the first, where this one was not measured on that night."""
        return np.where(np.isnan(self.level[kind, night]), 0, kind)

    def cell(self, kind: Index, night: Index, draw: Array) -> Array:
        """Trials of these nights, chosen by `draw` (0 to 1)."""
        return np.asarray(self.level[kind, night] + _chosen(self.around, (kind, night), draw))

    def canary(self, night: Index, draw: Array) -> Array:
        return np.asarray(self.canary_level[night] + _chosen(self.canary_around, (night,), draw))


def _chosen(around: Array, index: tuple[Index, ...], draw: Array) -> Array:
    count = np.isfinite(around).sum(-1)[index]
    place = np.minimum((draw * count).astype(int), count - 1)
    return around[(*index, place)]


@lru_cache(maxsize=1)
def recorded_nights(path: Path) -> RecordedNights:
    """All nights of the file, every round of each. A trial's value is the 5th percentile of its step times.

    A trial drawn from k trials of a night varies less than trials do, by (k - 1) / k; they are spread around their night's mean to make up
    for it. Raises ValueError for a file in which no cell was measured every night.
    """
    table = pq.read_table(path).to_pandas()
    table = table[table.role != "injected"]
    value = -np.log(table.groupby(["suite", "width", "role", "date", "round"], observed=True).step_us.quantile(0.05))
    wide = value.unstack("round")
    dates = sorted(wide.index.get_level_values("date").unique())
    cells: list[tuple[Array, Array]] = []
    canary: tuple[Array, Array] | None = None
    narrowest = table[(table.suite == PLANTED_IN[0]) & (table.role == PLANTED_IN[1])].width.min()
    for (suite, width, role), rows in wide.groupby(level=["suite", "width", "role"], observed=True):
        trials = rows.droplevel(["suite", "width", "role"]).reindex(dates)
        before = np.array([date < PLANTED or (suite, role, width) != (*PLANTED_IN, narrowest) for date in dates])
        levels = _around_levels(trials.to_numpy(), before)
        if role == "canary":
            canary = levels
        else:
            cells.append(levels)
    cells.sort(key=lambda levels: int(np.isnan(levels[0]).sum()))
    if canary is None or np.isnan(cells[0][0]).any() or np.isnan(canary[0]).any():
        raise ValueError(f"{path}: canary and one cell must have been measured every night")
    return RecordedNights(np.stack([level for level, _ in cells]), np.stack([around for _, around in cells]), *canary)


def _around_levels(trials: Array, before: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Night levels (nights,) and trials around them (nights, rounds, present ones first), each of two stretches around its own median."""
    count = np.isfinite(trials).sum(-1)
    level = np.where(count > 0, np.nansum(trials, axis=-1) / np.maximum(count, 1), np.nan)
    around = (trials - level[:, None]) * np.sqrt(count / np.maximum(count - 1, 1))[:, None]
    for stretch in (before, ~before):
        if stretch.any():
            level[stretch] -= np.nanmedian(level[stretch])
    order = np.argsort(np.isnan(around), axis=-1, kind="stable")
    return level, np.take_along_axis(around, order, axis=-1)
