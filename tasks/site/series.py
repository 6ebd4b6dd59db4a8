"""One metric of one cell over all nights of a definition, as columns: a year of 500 cells fits in memory."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from experiments.metric import Metric
from experiments.regression.definition import METRICS
from experiments.stats.verdict import Verdict
from tasks.nightly.figures import axis_unit
from tasks.nightly.pair_text import by_pairs, pair_sentence
from tasks.nightly.store import CHANGED, CellVerdict

Array = NDArray[np.float64]
VERDICTS = (Verdict.SAME, Verdict.UNDECIDED, Verdict.SLOWER, Verdict.FASTER)  # their places are the codes in columns and on pages
_CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}


class Series:
    """Grows night by night. Entries of all columns belong together; NaN stands for what is not known.

    `night`: index into the definition's nights. `value`: in the metric's unit. `ratio`, `low`, `high`: against the baseline with its 95 %
    interval, above 1 is better. `alarms`: the verdicts of the nights on which it changed, by the index of the night. `latest`: branch ->
    the index of its last night, and the verdict. `said`: what pairs of two commits say, by the index of the night; `paired`: their ratio
    with its interval, where they decided.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.night, self.verdict = array("i"), array("b")
        self.value, self.ratio, self.low, self.high, self.minimum = (array("d") for _ in range(5))
        self.alarms: dict[int, CellVerdict] = {}
        self.latest: dict[str | None, tuple[int, CellVerdict]] = {}
        self.said: dict[int, str] = {}
        self.paired: dict[int, tuple[float, float, float]] = {}

    def add(self, night: int, branch: str | None, item: CellVerdict) -> None:
        """The verdict of the next night. One without a value is kept in `latest` only: there is nothing to draw."""
        self.latest[branch] = night, item
        if item.verdict in CHANGED:
            self.alarms[night] = item.model_copy(update={"baseline": []})  # 20 dates, which no page shows
        if (text := pair_sentence(item)) is not None:
            self.said[night] = text
        told = item.pairs
        if told is not None and by_pairs(item) and told.ratio is not None and told.low is not None and told.high is not None:
            self.paired[night] = told.ratio, told.low, told.high
        if item.value is None:
            return
        self.night.append(night)
        self.verdict.append(_CODES[item.verdict])
        for column, value in (
            (self.value, item.value),
            (self.ratio, item.ratio),
            (self.low, item.low),
            (self.high, item.high),
            (self.minimum, item.minimum),
        ):
            column.append(nan if value is None else value)

    def last_of(self, nights: Collection[int]) -> tuple[int, CellVerdict] | None:
        """The last verdict on one of these nights, which are all those of one branch or of several."""
        return max((entry for entry in self.latest.values() if entry[0] in nights), key=lambda entry: entry[0], default=None)

    def points(self, nights: Collection[int]) -> Points:
        """What there is to draw of these nights (indices)."""
        where = np.isin(np.array(self.night, dtype=int), np.array(list(nights), dtype=int))
        metric = METRICS[self.metric]
        value, ratio, low, high, minimum = (
            np.array(column, dtype=float)[where] for column in (self.value, self.ratio, self.low, self.high, self.minimum)
        )
        scale, unit = axis_unit(metric, value)
        power = 1.0 if metric.higher_is_better else -1.0
        night = np.array(self.night, dtype=int)[where]
        told = np.array([self.paired.get(int(index), past) for index, past in zip(night, zip(ratio, low, high, strict=True), strict=True)])
        with np.errstate(invalid="ignore", divide="ignore"):
            change = told.reshape(-1, 3).T ** power - 1
            expected = value * scale / ratio**power
        change[1:] = np.sort(change[1:], axis=0)
        return Points(
            metric=metric,
            unit=unit,
            night=night,
            value=value * scale,
            expected=expected,
            change=change,
            paired=np.isin(night, list(self.paired)),
            verdict=np.array(self.verdict, dtype=int)[where],
            minimum=minimum,
        )


@dataclass(frozen=True)
class Points:
    """The nights of a series that are drawn, n of them, oldest first.

    `value`, `expected`: in `unit`; `expected` is what the value would have been without a change, with what the node's canary says:
    value / ratio, NaN without a baseline. `change`: shape (3, n), relative, in the metric's own direction: 0.05 is 5 % more; the change,
    the lower and the upper end of its 95 % interval: of pairs against an earlier commit where `paired`, since they decided, else against
    past nights. `verdict`: codes, places in VERDICTS.
    """

    metric: Metric
    unit: str
    night: NDArray[np.int_]
    value: Array
    expected: Array
    change: Array
    paired: NDArray[np.bool_]
    verdict: NDArray[np.int_]
    minimum: Array

    @property
    def interval(self) -> Array:
        """Lower and upper end of the change's 95 % interval around the value, in `unit`; shape (2, n)."""
        return np.asarray(self.value * (1 + self.change[1:]) / (1 + self.change[0]))

    @property
    def band(self) -> Array:
        """Between which values a night is `same`: the smallest changes that matter; shape (2, n), in `unit`."""
        factor = 1 + self.minimum
        return np.stack([self.expected / factor, self.expected * factor])
