"""Figures of a sweep, drawn by matplotlib without a display: SVG for the page, PNG for everything else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments.metrics import Direction
from experiments.spec.schema import ReportFigure
from experiments.summary import LATENCIES
from tasks.analysis.cell import Cell
from tasks.report.figures.axis import axis_figure
from tasks.report.figures.loss_spikes import spike_figure
from tasks.report.figures.numbered import numbered_figure
from tasks.report.model import PART_NAMES, PART_SHARES, other_share
from tasks.report.text_format import OUTCOMES, quantity, spread

mpl.use("Agg")

INK = "#14181f"  # becomes currentColor on the page, so that dark mode can read it
PARTS = ("#d55e00", "#cc79a7", "#3b82c4", "#2a9d78", "#9aa3af")
CURVES = ("#3b82c4", "#d55e00", "#2a9d78", "#cc79a7", "#c99700", "#56b4e9", "#7d5fb2", "#8a6d3b")
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
    "grid.color": "#9aa3af",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw_figures(
    cells: Sequence[Cell], folder: Path, watermark: str | None = None, *, own: Sequence[ReportFigure] = ()
) -> list[tuple[str, Path]]:
    """(title, SVG path) of each figure that there is data for; a PNG lies beside each. Old figures of the same name are replaced.

    `own`: the figures that the suite asks for (`report.figures`); they come first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    asked: list[tuple[str, str, Callable[[Sequence[Cell]], Figure | None]]] = [
        (f"suite-{at}", wanted.title, partial(numbered_figure if "*" in wanted.metric else axis_figure, wanted=wanted))
        for at, wanted in enumerate(own, 1)
    ]
    for name, title, draw in (*asked, *_FIGURES):
        with mpl.rc_context(STYLE):
            figure = draw(cells)
            if figure is None:
                for old in (folder / f"{name}.svg", folder / f"{name}.png"):
                    old.unlink(missing_ok=True)
                continue
            if watermark:
                figure.text(0.5, 0.5, watermark.upper(), fontsize=24, color="#c0392b", alpha=0.3, ha="center", va="center", rotation=20)
            path = folder / f"{name}.svg"
            figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": "sweepbench", "Title": title})
            figure.set_layout_engine("none")  # laid out already
            figure.savefig(path.with_suffix(".png"), dpi=150, facecolor="white")
            made.append((title, path))
    return made


def inline_svg(path: Path, title: str, prefix: str) -> str:
    """The SVG as it goes into a page: ink follows the page's colour, ids are the figure's own, with a name for those who cannot see it."""
    text = path.read_text()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(xlink:href="#|href="#|url\(#)(?!' + prefix + "-)", rf"\g<1>{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{name}" ', text, count=1)


def _bars(count: int, legend: bool = False) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8.6, 0.9 + 0.34 * count + (0.4 if legend else 0)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_ylim(count - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def throughput_figure(cells: Sequence[Cell]) -> Figure | None:
    """The metric of each cell with its 95 % interval; a cell without a value is an absent point with its outcome."""
    shown = [cell for cell in cells if cell.outcome != "to do"][:MOST]
    if not any(cell.estimate for cell in shown):
        return None
    figure, axes = _bars(len(shown))
    top = max(cell.estimate.value for cell in shown if cell.estimate)
    top = top if top > 0 else 1.0  # a score of 0 in every cell
    able = [cell for cell in shown if cell.estimate and cell.claimed and cell.metric.direction is not Direction.NEITHER]
    best = max(able, key=_goodness, default=None)
    for y, cell in enumerate(shown):
        if cell.estimate is None:
            axes.text(top * 0.01, y, f"{OUTCOMES.get(cell.outcome, cell.outcome)}", va="center", fontstyle="italic", color="#d1584a")
            continue
        value = cell.estimate
        axes.barh(y, value.value, height=0.62, color="#3b82c4" if cell is best else "#9db8d6", hatch=None if cell.claimed else "///")
        high = min(value.high, top * 1.3)
        if np.isfinite(value.se):
            axes.plot([max(value.low, 0), high], [y, y], color=INK, linewidth=1.4, solid_capstyle="butt")
            axes.plot([max(value.low, 0), high], [y, y], "|", color=INK, markersize=7)
        axes.text(max(high if np.isfinite(value.se) else 0, value.value) + top * 0.012, y, _value_text(cell), va="center", fontsize=9)
    axes.set_yticks(range(len(shown)), [cell.name for cell in shown])
    axes.set_xlim(0, top * 1.32)
    metric = shown[0].metric
    axes.set_xlabel(f"{metric.title}, 95 % interval" if metric.unit else metric.label)
    return figure


def _goodness(cell: Cell) -> float:
    assert cell.estimate is not None
    return -cell.estimate.value if cell.metric.lower_is_better else cell.estimate.value


def _value_text(cell: Cell) -> str:
    assert cell.estimate is not None
    value = quantity(cell.estimate.value, cell.metric).removesuffix(" samples/s")
    text = f"{value} {spread(cell.estimate, cell.metric)}".strip()
    return text if cell.claimed else f"{text} · left the loss band"


def loss_figure(cells: Sequence[Cell]) -> Figure | None:
    """Loss by step, smoothed, of each cell's first repeat that trained, and the fp32 band where a curve was gated."""
    trained = [
        cell for cell in cells if cell.measured and cell.mean(next(iter(LATENCIES))) is None
    ]  # only what does not train has a latency
    shown = [cell for cell in trained if np.isfinite(cell.measured[0].losses).sum() >= 2]
    if not shown:
        return None
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    by_cell = len(shown) <= len(CURVES)
    names = [cell.name if by_cell else str(cell.trial.parameters.get("precision", "")) for cell in shown]
    colours = dict(zip(dict.fromkeys(names), CURVES * (1 + len(names) // len(CURVES)), strict=False))
    seen: set[str] = set()
    for cell, name in zip(shown, names, strict=True):
        row = cell.measured[0]
        style = "-" if cell.claimed else "--"
        axes.plot(
            row.steps,
            _smooth(row.losses),
            style,
            color=colours[name],
            linewidth=1.6,
            alpha=1 if by_cell else 0.6,
            label=None if name in seen else name,
        )
        seen.add(name)
    gated = next((cell.parity for cell in shown if cell.parity is not None), None)
    if gated is not None:
        middle = gated.steps - (gated.steps[0] - 1) / 2  # of each window
        low, high = gated.reference - gated.half_width, gated.reference + gated.half_width
        axes.fill_between(middle, low, high, color="#9aa3af", alpha=0.25, linewidth=0, label="band of fp32")
    axes.set_xlabel("step, warm-up included")
    axes.set_ylabel("training loss (smoothed)")
    if len(seen) + (gated is not None) > 1:
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


def decomposition_figure(cells: Sequence[Cell]) -> Figure | None:
    """Mean step time, split into its parts."""
    shown = [cell for cell in cells if cell.measured and all(cell.mean(name) is not None for name in PART_SHARES)][:MOST]
    if not shown:
        return None
    figure, axes = _bars(len(shown), legend=True)
    left = np.zeros(len(shown))
    shares = [[cell.mean(name) or 0.0 for name in PART_SHARES] for cell in shown]
    steps = np.array([_mean_step_ms(cell) for cell in shown])
    for index, (name, colour) in enumerate(zip(PART_NAMES, PARTS, strict=True)):
        part = np.array([(share[index] if index < len(share) else other_share(share) or 0.0) for share in shares]) * steps
        axes.barh(range(len(shown)), part, left=left, height=0.62, color=colour, label=name)
        left += part
    axes.set_yticks(range(len(shown)), [cell.name for cell in shown])
    axes.set_xlabel("mean step time (ms)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(PART_NAMES), fontsize=9)
    return figure


def _mean_step_ms(cell: Cell) -> float:
    steps, samples, rate = (cell.mean(name) for name in ("measured_steps", "samples", "throughput"))
    return samples / steps / rate * 1000 if steps and samples and rate else 0.0


_FIGURES: tuple[tuple[str, str, Callable[[Sequence[Cell]], Figure | None]], ...] = (
    ("throughput", "Each cell, with 95 % intervals", throughput_figure),
    ("spikes", "Loss, RMS of the first tensor watched, and the spikes of both", spike_figure),
    ("loss", "Loss curves", loss_figure),
    ("decomposition", "Where a step's time goes", decomposition_figure),
)
