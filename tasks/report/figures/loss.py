"""Figure: the loss curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.summary import BATCH_TIMES
from tasks.analysis.cell import Cell
from tasks.report.figures.style import CURVES

POINTS = 2000  # of all curves together, at least LEAST of each: smoothed curves need no more
LEAST = 40


def loss_figure(cells: Sequence[Cell]) -> Figure | None:
    """Loss by step, smoothed, of each cell's first repeat that trained; dashed where loss parity struck it."""
    trained = [
        cell for cell in cells if cell.measured and all(cell.mean(f"{name}_p50_s") is None for name in BATCH_TIMES.values())
    ]  # only what does not train has a time of a batch
    curves = [cell for cell in trained if np.isfinite(cell.measured[0].losses).sum() >= 2]
    if not curves:
        return None
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    by_cell = len(curves) <= len(CURVES)
    names = [cell.short if by_cell else str(cell.trial.parameters.get("precision", "")) for cell in curves]
    colours = dict(zip(dict.fromkeys(names), CURVES * (1 + len(names) // len(CURVES)), strict=False))
    drawn: dict[tuple[str, str], list[np.ndarray[Any, Any]]] = {}  # (name, style) -> curves, (2, points) each
    for cell, name in zip(curves, names, strict=True):
        row = cell.measured[0]
        shown = np.unique(np.linspace(0, row.steps.size - 1, max(LEAST, POINTS // len(curves))).astype(int))
        drawn.setdefault((name, "--" if cell.struck else "-"), []).append(np.array([row.steps[shown], _smooth(row.losses)[shown]], float))
    seen: set[str] = set()
    for (name, style), several in drawn.items():  # as one line with gaps: a thousand lines take seconds
        gap = np.full((2, 1), np.nan)
        steps, losses = np.hstack([part for curve in several for part in (curve, gap)])[:, :-1]
        label = None if name in seen else name
        axes.plot(steps, losses, style, color=colours[name], linewidth=1.6, alpha=1 if by_cell else 0.6, label=label)
        seen.add(name)
    axes.set_xlabel("step, warm-up included")
    axes.set_ylabel("training loss (smoothed)")
    if len(seen) > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)
    return figure


def _smooth(losses: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mean over n / 20 steps around each, fewer at the ends; as it is where a loss is not finite."""
    if not np.isfinite(losses).all():
        return losses
    half = losses.size // 40
    sums = np.cumsum(np.insert(losses, 0, 0.0))
    at = np.arange(losses.size)
    starts, ends = np.maximum(0, at - half), np.minimum(losses.size, at + half + 1)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
