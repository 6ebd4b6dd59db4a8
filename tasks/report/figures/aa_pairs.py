"""Figure: each pair of an A/A sweep in order, with the interval that it would have had by itself."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tasks.analysis.aa import AaResult
from tasks.report.figures.style import CURVES, INK, RED


def aa_figure(result: AaResult | None) -> Figure | None:
    """B over A of each pair, in percent, with its 95 % interval; those that leave out 0 in red. None without a pair."""
    if result is None or not result.comparisons:
        return None
    numbers = np.array([one.number for one in result.comparisons])
    values, low, high = (
        100 * (np.array([getattr(one.ratio, name) for one in result.comparisons]) - 1) for name in ("value", "low", "high")
    )
    covered = np.array([one.covered for one in result.comparisons])
    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(0, color=INK, linewidth=0.8)
    for those, colour, name in ((covered, CURVES[0], "covers 0"), (~covered, RED, "does not")):
        if those.any():
            axes.vlines(numbers[those], low[those], high[those], color=colour, linewidth=1, alpha=0.5)
            axes.plot(numbers[those], values[those], "o", color=colour, markersize=3.5, label=f"{name} ({int(those.sum())})")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("pair, in the order of time")
    axes.set_ylabel("B over A, %")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    return figure
