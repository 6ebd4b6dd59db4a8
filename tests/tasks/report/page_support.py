"""A report of any number of cells, from made-up numbers, and its page taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import islice, product
from pathlib import Path
from typing import Any

import matplotlib as mpl

from experiments.summary import PARTS
from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow
from tasks.report.figures.decomposition import decomposition_figure
from tasks.report.figures.loss import loss_figure
from tasks.report.figures.style import STYLE
from tasks.report.html import render_html
from tasks.report.model import Report, report_of
from tests.tasks.cell_support import repeats, settings, source_of

NOISE = ((-0.002, 0.0, 0.002), (0.004, -0.001, -0.003), (-0.02, 0.015, 0.005))
STEPS = 400


def many_rows(count: int) -> list[TrialRow]:
    """Three trials of each of `count` cells, of one pool and model, that differ in four axes."""
    axes = product(("fp32", "bf16"), ("none", "layer"), (16, 32, 48, 64, 96), range(16))
    rows = []
    for place, (precision, compiled, batch, workers) in enumerate(islice(axes, 0, None, max(1, 320 // count))):
        if place == count:
            break
        rate = 100.0 * (1 + (precision == "bf16")) * (1 + 0.3 * (compiled == "layer")) * (1 + batch / 400) * (1 + 0.02 * workers)
        chosen = {"pool": "h200", "model": "large", "precision": precision, "compile": compiled, "batch_size": batch}
        summary: dict[str, Any] = {f"{part}_share": 0.9 / len(PARTS) for part in PARTS}
        summary |= {"samples": 4000, "measured_steps": 500, "step_time_median_s": batch / rate, "peak_memory_bytes": 3e10}
        losses = [2 + 3 * math.exp(-step / 100) + 0.001 * place for step in range(STEPS)]
        environment = {"device_name": "Made-up GPU", "torch": "2.13.0", "host": "box"}
        at = {**chosen, "dataloader_workers": workers}
        rows += repeats(at, rate, NOISE[place % 3], losses=losses, summary=summary, environment=environment, workload="bridgetower")
    return rows


def many_cells(count: int, folder: Path | None = None) -> Report:
    """Their report; with `folder`, with the figures of losses and of step times."""
    base = {"precision": "fp32", "compile": "none", "batch_size": 16, "dataloader_workers": 0}
    source = source_of(many_rows(count), settings(rows=("model", "precision", "compile", "batch_size"), baseline=base))
    return report_of(source if folder is None else replace(source, figures=drawn(source.cells, folder)))


def drawn(cells: Sequence[Cell], folder: Path) -> list[tuple[str, Path]]:
    """As draw_figures writes them, without the PNG beside each."""
    made = []
    draw: dict[str, Callable[[Sequence[Cell]], Any]] = {"loss": loss_figure, "decomposition": decomposition_figure}
    for name, function in draw.items():
        with mpl.rc_context(STYLE):
            figure = function(cells)
            assert figure is not None
            figure.savefig(folder / f"{name}.svg", format="svg", transparent=True, metadata={"Date": None})
        made.append((name, folder / f"{name}.svg"))
    return made


class Page(HTMLParser):
    """A page's elements, addresses, ids, scripts and words."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}  # tag -> the text of each of its elements
        self.words = ""
        self.feed(html)

    @classmethod
    def of(cls, report: Report) -> Page:
        return cls(render_html(report))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def all(self, attribute: str, tag: str | None = None) -> list[str]:
        """The values of an attribute, of the elements that have it."""
        return [attrs[attribute] or "" for name, attrs in self.elements if attribute in attrs and tag in (None, name)]
