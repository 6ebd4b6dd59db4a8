"""The history of a cell as a figure: its nights with their verdicts, and the level of each segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.metric import Kind, Metric
from experiments.regression.definition import METRICS, word_of
from experiments.regression.effect import canary_deviation, night_error, night_value
from experiments.regression.history_segments import Change
from experiments.stats.estimate import LEVEL, t_value
from experiments.stats.verdict import Verdict
from tasks.nightly.history import Measured
from tasks.nightly.store import CHANGED
from tasks.report.figures.style import CURVES, INK, STYLE, save

_MARKS = {
    Verdict.SLOWER: ("v", "#b3372b"),
    Verdict.FASTER: ("^", "#17704f"),
    Verdict.UNDECIDED: ("o", "#9aa3af"),
    Verdict.SAME: ("o", "#3b82c4"),
}


@dataclass(frozen=True)
class Course:
    """One metric of one cell over its nights, oldest first.

    Arrays have one entry for each date, in the metric's unit. `values`, with the 95 % interval `low` to `high`, are relative to the node;
    `raw` are as measured.
    """

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
    """Each night's value and the interval of its repeats, with `share` (0 to 1) of the canary's deviation subtracted.

    `nights`, `canary`: date -> trials. Nights without a value above 0 are left out.
    """
    dates = [date for date, trials in nights.items() if any(trial.values.get(metric, 0) > 0 for trial in trials)]
    node = _node_deviation(dates, canary, metric)
    logs = [np.log([trial.values[metric] for trial in nights[date] if trial.values.get(metric, 0) > 0]) for date in dates]
    raw = np.array([float(night_value(values)) for values in logs])
    free = raw - share * node
    half = _half_intervals(logs)
    return Course(name, metric, dates, np.exp(free), np.exp(free - half), np.exp(free + half), np.exp(raw), verdicts, changes)


def _half_intervals(logs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Half the 95 % interval of each night's value, by its repeats `logs`; 0 where no night has two."""
    repeats = np.full((len(logs), max((values.size for values in logs), default=0)), np.nan)
    for row, values in zip(repeats, logs, strict=True):
        row[: values.size] = values
    error, df = night_error(repeats)
    return np.nan_to_num(t_value(LEVEL, float(df)) * error)


def _node_deviation(dates: Sequence[str], canary: Mapping[str, list[Measured]], metric: str) -> NDArray[np.float64]:
    """`canary_deviation` of each date."""
    levels = np.full(len(dates), np.nan)
    for index, date in enumerate(dates):
        values = [trial.values[metric] for trial in canary.get(date, []) if trial.values.get(metric, 0) > 0]
        if values:
            levels[index] = float(night_value(np.log(values)))
    return canary_deviation(levels)


def draw_course(course: Course, folder: Path, stem: str) -> tuple[str, Path]:
    """Draw `folder`/`stem`.svg and a PNG beside it. Returns the title and the SVG's path."""
    folder.mkdir(parents=True, exist_ok=True)
    metric = METRICS[course.metric]
    title = f"{course.name}: {course.metric.replace('_', ' ')} by night"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        scale, unit = axis_unit(metric, course.values)
        _draw_nights(axes, course, scale)
        _draw_levels(axes, course, scale)
        _draw_changes(axes, course)
        _draw_legend(axes, course)
        step = max(1, len(course.dates) // 10)
        axes.set_xticks(np.arange(len(course.dates))[::step], [date[5:] for date in course.dates[::step]])
        axes.set_ylabel(f"{metric.label}, {unit}" if unit else metric.label)
        axes.set_title(course.name, loc="left", fontsize=10)
        path = folder / f"{stem}.svg"
        save(figure, path, title)
    return title, path


def _draw_nights(axes: Axes, course: Course, scale: float) -> None:
    """Each night's value with its interval, marked by its verdict; small points for the values as measured."""
    x = np.arange(len(course.dates))
    axes.plot(x, course.raw * scale, ".", color="#9aa3af", markersize=5, label="as measured")
    for index, date in enumerate(course.dates):
        mark, colour = _MARKS[course.verdicts.get(date, Verdict.UNDECIDED)]
        axes.plot([x[index]] * 2, [course.low[index] * scale, course.high[index] * scale], color=colour, linewidth=1.4)
        axes.plot(x[index], course.values[index] * scale, mark, color=colour, markersize=6)


def _draw_levels(axes: Axes, course: Course, scale: float) -> None:
    """A horizontal line for the level of each segment."""
    for number, (start, end) in enumerate(_segments(course)):
        level = float(np.exp(night_value(np.log(course.values[start:end])))) * scale
        axes.plot([start - 0.4, end - 1 + 0.4], [level, level], color=CURVES[number % len(CURVES)], linewidth=1.2, alpha=0.8)


def _draw_changes(axes: Axes, course: Course) -> None:
    """A vertical line before the first night of each accepted change, and who accepted it."""
    for change in course.changes:
        if change.since in course.dates:
            place = course.dates.index(change.since) - 0.5
            axes.axvline(place, color=INK, linewidth=0.8, linestyle=":")
            who = "itself" if change.by == "nights" else change.by
            axes.text(place + 0.08, axes.get_ylim()[1], f"accepted by {who}", fontsize=8, va="top")


def _draw_legend(axes: Axes, course: Course) -> None:
    """The marks of the verdicts that occur, in the metric's own words."""
    for verdict, (mark, colour) in _MARKS.items():
        if verdict in course.verdicts.values():
            axes.plot([], [], mark, color=colour, label=word_of(verdict, course.metric))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)


def _segments(course: Course) -> list[tuple[int, int]]:
    """Index ranges (start, end) of the stretches at one level: they begin at accepted changes, and at an open alarm."""
    starts = {0} | {course.dates.index(change.since) for change in course.changes if change.since in course.dates}
    tail = None
    for index in range(len(course.dates) - 1, -1, -1):
        if course.verdicts.get(course.dates[index]) not in CHANGED:
            break
        tail = index
    if tail is not None and tail > max(starts):
        starts.add(tail)
    ordered = sorted(starts)
    return [(start, end) for start, end in zip(ordered, [*ordered[1:], len(course.dates)], strict=True) if end > start]


def axis_unit(metric: Metric, values: NDArray[np.float64]) -> tuple[float, str]:
    """The factor from the metric's unit to the axis's unit, and the latter's name."""
    if metric.kind is Kind.SECONDS and values.size and float(np.median(values)) < 1:
        return 1000.0, "ms"
    return (2.0**-20, "MiB") if metric.kind is Kind.BYTES else (1.0, metric.unit)
