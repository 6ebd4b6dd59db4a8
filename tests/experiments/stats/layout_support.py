"""Layouts of made-up values, one trial for each cell and round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.stats.layout import Layout


def in_rounds(values: Sequence[Sequence[float]], *, forward: bool = False, **more: object) -> Layout:
    """Cells 0, 1, ... with their repeats; every second round runs backwards unless `forward`. None: the trial is missing."""
    count = len(values)
    trials = [
        (value, cell, repeat, repeat * count + (count - 1 - cell if repeat % 2 and not forward else cell))
        for cell, row in enumerate(values)
        for repeat, value in enumerate(row)
        if value is not None
    ]
    logs, cells, rounds, places = zip(*trials, strict=True)
    return Layout(logs, cells, rounds, places, **more)  # type: ignore[arg-type]


def random_rows(seed: int, cells: int, rounds: int, sd: float = 1.0) -> list[list[float]]:
    return [list(row) for row in sd * np.random.default_rng(seed).normal(size=(cells, rounds))]
