"""Figures of a sweep, drawn by matplotlib without a display: SVG for the page, PNG for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.spec.schema import ReportFigure
from tasks.analysis.aa import AaResult
from tasks.analysis.cell import Cell
from tasks.analysis.held_time import HeldTime
from tasks.analysis.race import Race
from tasks.report.figures.aa_pairs import aa_figure
from tasks.report.figures.axis import axis_figure
from tasks.report.figures.cost import cost_figure, energy_figure
from tasks.report.figures.decomposition import decomposition_figure
from tasks.report.figures.held_time import held_time_figure
from tasks.report.figures.loss import loss_figure
from tasks.report.figures.loss_parity import parity_figure
from tasks.report.figures.loss_spikes import spike_figure
from tasks.report.figures.numbered import numbered_figure
from tasks.report.figures.race import race_figure
from tasks.report.figures.style import STYLE, save
from tasks.report.figures.throughput import throughput_figure
from tasks.report.figures.waterfall import waterfall_figure

Draw = Callable[[Sequence[Cell]], Figure | None]  # None where there is no data for the figure
# (file name, title, function), in order
_FIGURES: tuple[tuple[str, str, Draw], ...] = (
    ("cost", "Throughput against the cost of a million samples; round: on the front", cost_figure),
    ("energy", "Throughput against the energy of a million samples; round: on the front", energy_figure),
    ("spikes", "Loss, RMS of the first tensor watched, and the spikes of both", spike_figure),
    ("loss", "Loss curves", loss_figure),
    ("parity", "Loss parity: difference from the reference", parity_figure),
    ("decomposition", "Where a step's time goes", decomposition_figure),
    ("waterfall", "Where the peak goes", waterfall_figure),
)


def draw_figures(
    cells: Sequence[Cell],
    folder: Path,
    watermark: str | None = None,
    *,
    own: Sequence[ReportFigure] = (),
    winners: Sequence[Cell] = (),
    aa: AaResult | None = None,
    race: Race | None = None,
    held: HeldTime | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> list[tuple[str, Path]]:
    """(title, SVG path) of each figure that there is data for; a PNG lies beside each. Old figures of the same name are replaced.

    `own`: the figures that the suite asks for (`report.figures`); they come first. `winners`: the cells that stand out. `aa`: of an A/A
    sweep, whose pairs are drawn. `race`: of a race. `held`: where the time went that the pools were held, with the `names` of trials by
    key.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    asked: list[tuple[str, str, Draw]] = [
        (f"suite-{at}", figure_spec.title, partial(numbered_figure if "*" in figure_spec.metric else axis_figure, figure_spec=figure_spec))
        for at, figure_spec in enumerate(own, 1)
    ]
    asked.append(("aa-pairs", "Each A/A pair, with the 95 % interval it would have had alone", lambda _: aa_figure(aa)))
    asked.append(("race", "The race: each setting against the leader, until it drops out", lambda _: race_figure(race)))
    asked.append(("throughput", "Each cell, with its 95 % interval where that is known", partial(throughput_figure, winners=winners)))
    last = ("held-time", "Where the time went that the pools were held", lambda _: held_time_figure(held, names))
    for name, title, draw in (*asked, *_FIGURES, last):
        with mpl.rc_context(STYLE):
            figure = draw(cells)
            if figure is None:
                for old in (folder / f"{name}.svg", folder / f"{name}.png"):
                    old.unlink(missing_ok=True)
                continue
            if watermark:
                figure.text(0.5, 0.5, watermark.upper(), fontsize=24, color="#c0392b", alpha=0.3, ha="center", va="center", rotation=20)
            path = folder / f"{name}.svg"
            save(figure, path, title)
            made.append((title, path))
    return made
