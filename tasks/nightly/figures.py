"""The history of a cell as a figure: its nights, their level by segment, and what was said of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.metrics import Kind, Metric
from experiments.regression.definition import METRICS
from experiments.regression.effect import night_value
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.history import Measured
from tasks.report.figures.draw import CURVES, INK, STYLE

_MARKS = {
    Verdict.SLOWER: ("v", "#b3372b"),
    Verdict.FASTER: ("^", "#17704f"),
    Verdict.UNDECIDED: ("o", "#9aa3af"),
    Verdict.SAME: ("o", "#3b82c4"),
}
_Z95 = 1.96


@dataclass(frozen=True)
class Course:
    """One metric of one cell over its nights, oldest first; values in the metric's unit, relative to the node."""

    name: str
    metric: str
    dates: list[str]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    raw: NDArray[np.float64]
    verdicts: Mapping[str, Verdict]
    changes: Sequence[Change] = field(default_factory=list)


def course(
    name: str,
    metric: str,
    nights: Mapping[str, list[Measured]],
    canary: Mapping[str, list[Measured]],
    share: float,
    verdicts: Mapping[str, Verdict],
    changes: Sequence[Change],
) -> Course:
    """Each night's value with the interval of its repeats, `share` of the canary's change taken off. Nights without a value are absent."""
    dates = [date for date, trials in nights.items() if any(trial.values.get(metric, 0) > 0 for trial in trials)]
    node = _node(dates, canary, metric)
    logs = [np.log([trial.values[metric] for trial in nights[date] if trial.values.get(metric, 0) > 0]) for date in dates]
    raw = np.array([float(night_value(values)) for values in logs])
    free = raw - share * node
    spreads = [float(values.std(ddof=1)) if values.size > 1 else np.nan for values in logs]
    usual = float(np.nanmedian(spreads)) if np.isfinite(spreads).any() else 0.0
    half = np.array([_Z95 * usual / np.sqrt(values.size) for values in logs])
    return Course(name, metric, dates, np.exp(free), np.exp(free - half), np.exp(free + half), np.exp(raw), verdicts, changes)


def _node(dates: Sequence[str], canary: Mapping[str, list[Measured]], metric: str) -> NDArray[np.float64]:
    """The canary's deviation from its usual, a logarithm; 0 for nights without one."""
    found = np.full(len(dates), np.nan)
    for index, date in enumerate(dates):
        values = [trial.values[metric] for trial in canary.get(date, []) if trial.values.get(metric, 0) > 0]
        if values:
            found[index] = float(night_value(np.log(values)))
    return np.nan_to_num(found - np.nanmedian(found)) if np.isfinite(found).any() else np.zeros(len(dates))


def draw_course(course: Course, folder: Path, stem: str) -> tuple[str, Path]:
    """(title, SVG path); a PNG lies beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    metric = METRICS[course.metric]
    title = f"{course.name}: {course.metric.replace('_', ' ')} by night"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        scale, unit = _unit(metric, course.values)
        x = np.arange(len(course.dates))
        axes.plot(x, course.raw * scale, ".", color="#9aa3af", markersize=5, label="as measured")
        for index, date in enumerate(course.dates):
            mark, colour = _MARKS[course.verdicts.get(date, Verdict.UNDECIDED)]
            axes.plot([x[index]] * 2, [course.low[index] * scale, course.high[index] * scale], color=colour, linewidth=1.4)
            axes.plot(x[index], course.values[index] * scale, mark, color=colour, markersize=6)
        for number, (start, end) in enumerate(_segments(course)):
            level = float(np.exp(night_value(np.log(course.values[start:end])))) * scale
            axes.plot([x[start] - 0.4, x[end - 1] + 0.4], [level, level], color=CURVES[number % len(CURVES)], linewidth=1.2, alpha=0.8)
        for change in course.changes:
            if change.since in course.dates:
                place = course.dates.index(change.since) - 0.5
                axes.axvline(place, color=INK, linewidth=0.8, linestyle=":")
                axes.text(
                    place + 0.08,
                    axes.get_ylim()[1],
                    f"accepted by {'itself' if change.by == 'nights' else change.by}",
                    fontsize=8,
                    va="top",
                )
        for word, (mark, colour) in _MARKS.items():
            text = {Verdict.SLOWER: metric.worse, Verdict.FASTER: metric.better}.get(word, str(word))
            if word in course.verdicts.values():
                axes.plot([], [], mark, color=colour, label=text)
        step = max(1, len(x) // 10)
        axes.set_xticks(x[::step], [date[5:] for date in course.dates[::step]])
        axes.set_ylabel(f"{metric.label}, {unit}" if unit else metric.label)
        axes.set_title(course.name, loc="left", fontsize=10)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
        path = folder / f"{stem}.svg"
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": "sweepbench", "Title": title})
        figure.set_layout_engine("none")
        figure.savefig(path.with_suffix(".png"), dpi=150, facecolor="white")
    return title, path


def _segments(course: Course) -> list[tuple[int, int]]:
    """Index ranges of the stretches at one level: accepted changes, and an alarm that is open."""
    starts = {0} | {course.dates.index(change.since) for change in course.changes if change.since in course.dates}
    tail = None
    for index in range(len(course.dates) - 1, -1, -1):
        if course.verdicts.get(course.dates[index]) not in (Verdict.SLOWER, Verdict.FASTER):
            break
        tail = index
    if tail is not None and tail > max(starts):
        starts.add(tail)
    ordered = sorted(starts)
    return [(start, end) for start, end in zip(ordered, [*ordered[1:], len(course.dates)], strict=True) if end > start]


def _unit(metric: Metric, values: NDArray[np.float64]) -> tuple[float, str]:
    if metric.kind is Kind.SECONDS and values.size and float(np.median(values)) < 1:
        return 1000.0, "ms"
    return (2.0**-20, "MiB") if metric.kind is Kind.BYTES else (1.0, metric.unit)
