"""Figure: where the time went that the pools were held, a bar for each trial in the order of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from tasks.analysis.held_time import DISCARDED, FAILED, NO_RATE, PARTS, WAITING, HeldTime
from tasks.report.figures.style import CURVES, GREY, MOST, RED, bars, end_bars, name_bars
from tasks.report.held_text import GROUPS, grouped

_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _SKY, _PURPLE, _BROWN = CURVES
_WIDE = 30  # letters of a name beside which four have room, and not five
COLOURS: Mapping[str, str] = {
    PARTS[WAITING]: "#4d4d4d",
    "between trials": GREY,
    PARTS[NO_RATE]: "#8f8f3c",
    PARTS[FAILED]: "#6e1423",
    PARTS[DISCARDED]: RED,
    "start": _ORANGE,
    "batch search": "#e8a87c",
    "data and build": _BLUE,
    "evaluation": _PINK,
    "first step": _PURPLE,
    "warm-up": _YELLOW,
    "measured": _GREEN,
    "beside the window": _SKY,
    "teardown": _BROWN,
    "not recorded": "#c9ced6",
}


def held_time_figure(held: HeldTime | None, names: Mapping[str, str]) -> Figure | None:
    """A bar of slot-seconds for each hold, split into groups of parts; the first MOST of them. `names`: a trial's key -> its name."""
    if held is None or not held.seconds:
        return None
    shown = held.trials[:MOST]
    figure, axes = bars(len(shown), legend=True)
    left = np.zeros(len(shown))
    rows = [grouped(trial.parts) for trial in shown]
    for group in GROUPS:
        widths = np.array([row.get(group, 0.0) for row in rows])
        if widths.any():
            axes.barh(range(len(shown)), widths, left=left, height=0.62, color=COLOURS[group], label=group)
            left += widths
    name_bars(figure, axes, [names.get(trial.trial, trial.trial) for trial in shown])
    end_bars(axes)
    rest = f"; the first {MOST} of {len(held.trials)} trials" if len(held.trials) > MOST else ""
    axes.set_xlabel(f"{'seconds' if held.slots == 1 else 'slot-seconds'}; trials in the order of the run{rest}")
    handles, labels = axes.get_legend_handles_labels()
    beside = 5 if max(map(len, labels), default=0) < _WIDE else 4
    figure.legend(handles, labels, loc="outside upper center", ncols=min(beside, len(labels)), fontsize=9)
    figure.set_figheight(figure.get_figheight() + 0.25 * (math.ceil(len(labels) / beside) - 1))
    return figure
