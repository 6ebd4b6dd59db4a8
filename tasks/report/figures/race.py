"""Figure: a race. How each setting stands against the leader after each round, until it drops out."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tasks.analysis.race import Race, Why
from tasks.report.figures.style import CURVES, GREY, INK, RED
from tasks.report.race_answer import setting_name

_NAMED = len(CURVES)


def race_figure(race: Race | None) -> Figure | None:
    """Percent of the leader after each round, of means until then; those left in colours, with their intervals at the round's level.

    Crosses mark who dropped out for being behind, squares who did for another reason. None before two rounds.
    """
    if race is None:
        return None
    judged = [one for one in race.rounds if one.standing.leader >= 0]
    if not judged:
        return None
    number = np.array([one.number for one in judged])
    level = 100 * np.exp(-np.array([np.where(one.before, one.standing.behind, np.nan) for one in judged]))
    low, high = (100 * np.exp(-np.array([getattr(one.standing, end) for one in judged])) for end in ("high", "low"))
    figure = Figure(figsize=(8.6, 4.4), layout="constrained")
    axes = figure.add_subplot()
    left = sorted(race.left, key=lambda racer: -np.nan_to_num(level[-1, racer]))
    for racer in range(len(race.trials)):
        if racer not in left:
            axes.plot(number, level[:, racer], color=GREY, linewidth=0.8, alpha=0.6, zorder=1)
    for marker, colour, kinds, name in (
        ("x", GREY, (Why.BEHIND,), "surely behind"),
        ("s", RED, tuple(set(Why) - {Why.BEHIND}), "other reason"),
    ):
        out = [
            (one.round, level[list(number).index(one.round), one.racer])
            for one in race.dropouts
            if one.why in kinds and one.round in number
        ]
        shown = [place for place in out if np.isfinite(place[1])]
        if shown:
            axes.plot(*zip(*shown, strict=True), marker, color=colour, markersize=5, label=f"dropped out: {name} ({len(shown)})", zorder=2)
    for place, racer in enumerate(left[:_NAMED]):
        shift = 0.04 * (place - min(len(left), _NAMED) / 2)  # so that intervals stand beside each other
        axes.plot(number + shift, level[:, racer], "o-", color=CURVES[place], markersize=4, label=setting_name(race, racer), zorder=4)
        axes.vlines(number + shift, low[:, racer], np.minimum(high[:, racer], 130), color=CURVES[place], linewidth=1.2, alpha=0.6, zorder=3)
    floor = np.nanmin(level) if np.isfinite(level).any() else 0.0
    axes.set_ylim(floor - 3, min(120.0, 103 + (100 - floor) / 10))
    axes.axhline(100, color=INK, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel(f"{race.metric.label}, % of the leader")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure
