"""What all figures share: ink, colours, type, an empty figure for bars, and how a figure is saved."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

mpl.use("Agg")  # no display

INK = "#14181f"  # becomes currentColor on the page, so that dark mode can read it
CURVES = ("#3b82c4", "#d55e00", "#2a9d78", "#cc79a7", "#c99700", "#56b4e9", "#7d5fb2", "#8a6d3b")
GREY = "#9aa3af"
RED = "#d1584a"  # cells without a value, spikes
COLOURS = (*CURVES, GREY, INK)  # where there are more series than curves
_NAME, _LINE = 44, 0.17  # letters in a line of a bar's name; height of a further one, inches
MOST = 60  # cells in one figure; beyond that nothing can be read
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sweepbench",
    "text.parse_math": False,  # names of trials are text, never formulas
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.autolayout": False,  # a figure without a layout engine has none: see `save`
    "figure.constrained_layout.use": False,
}


def interval(axes: Any, at: float, ends: tuple[float, float], within: tuple[float, float], *, upright: bool) -> tuple[float, float]:
    """Draw an interval over the bar at `at`: a line with a stroke across each end, or with an arrow where it goes on beyond `within`.

    `upright`: bars stand, else they lie. Returns from where to where it is drawn.
    """
    low, high = max(ends[0], within[0]), min(ends[1], within[1])
    strokes = ("_", "v", "^") if upright else ("|", "<", ">")
    along, across = (low, high), (at, at)
    x, y = (across, along) if upright else (along, across)
    axes.plot(x, y, color=INK, linewidth=1.4, solid_capstyle="butt", zorder=3)
    for end, (place, goes_on) in enumerate(zip((low, high), (ends[0] < low, ends[1] > high), strict=True)):
        stroke = strokes[1 + end] if goes_on else strokes[0]
        axes.plot(*((at, place) if upright else (place, at)), stroke, color=INK, markersize=5 if goes_on else 7, zorder=3)
    return low, high


def bars(count: int, legend: bool = False) -> tuple[Figure, Any]:
    """An empty figure with `count` rows for horizontal bars, the first on top, and its axes. `legend`: leave room for one."""
    figure = Figure(figsize=(8.6, 0.9 + 0.34 * count + (0.4 if legend else 0)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_ylim(count - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def name_bars(figure: Figure, axes: Any, names: Sequence[str]) -> None:
    """Write the bars' names beside them, long ones in several lines, for which the figure gets higher: else they leave no room for bars."""
    lines = [textwrap.wrap(name, _NAME, break_long_words=False) or [""] for name in names]
    axes.set_yticks(range(len(names)), ["\n".join(part) for part in lines])
    figure.set_figheight(figure.get_figheight() + _LINE * sum(len(part) - 1 for part in lines))


def end_bars(axes: Any) -> None:
    """Let the horizontal axis go from 0 to a little beyond the longest bar, which would else look cut off. Call it when all are drawn."""
    axes.use_sticky_edges = False  # the axis would end where a part without width begins: at the end of a bar
    axes.autoscale_view(scaley=False)
    axes.set_xlim(left=0)


def room_for_texts(figure: Figure, axes: Any, least: float) -> None:
    """Let the horizontal axis go from 0 so far, at least to `least`, that each text in it ends within it. Call it last."""
    for text in axes.texts:
        text.set_in_layout(False)  # what reaches beyond the axis would make it shorter
    axes.set_xlim(0, least)
    lay_out(figure)  # names beside the axis leave it less width
    whole = axes.get_window_extent().width
    shares = [(text.get_position()[0], min(0.9, text.get_window_extent().width / whole)) for text in axes.texts]
    axes.set_xlim(0, max([least, *(at / (1 - share) for at, share in shares)]))


def save(figure: Figure, path: Path, title: str) -> None:
    """Write a figure as SVG to `path` and as PNG beside it. It is laid out once, and has no layout engine afterwards.

    Where a figure has an engine, even the placeholder that "none" leaves, `savefig` draws it once more, to nowhere, only to lay it out.
    """
    dpi = figure.dpi
    FigureCanvasSVG(figure)  # texts are measured as SVG has them, whose inch is 72 dots
    figure.dpi = 72
    lay_out(figure)
    figure.dpi = dpi
    figure.set_layout_engine(None)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": "sweepbench", "Title": title})
    figure.savefig(path.with_suffix(".png"), dpi=150, facecolor="white")


def lay_out(figure: Figure) -> None:
    """Place the axes as a draw would, without drawing."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
