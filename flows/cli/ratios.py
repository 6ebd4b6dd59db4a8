"""How cells stand to their baselines while a sweep runs, for the live table: what has ended so far, judged by nobody."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress

from experiments.spec.schema import Suite
from flows.runtime.progress import TrialProgress

_SHARE = 0.02  # of the time is spent on them at most: trials are measured meanwhile
_LEAST_S = 2.0  # between two times


class Ratios:
    """Computed again when trials have ended since, and not too often."""

    def __init__(self, suite: Suite | None) -> None:
        """`suite`: names the baseline and the metric; None: nothing is compared."""
        self._suite = suite
        self._texts: dict[str, str] = {}
        self._count, self._not_before = 0, 0.0

    def of(self, rows: Sequence[TrialProgress]) -> dict[str, str]:
        """Key of the last trial of each cell that has ended -> `x1.26 (0.96–1.65) ?`: the ratio, or the difference, with its interval."""
        ended = [row for row in rows if row.result is not None]
        began = time.monotonic()
        if self._suite is not None and len(ended) != self._count and began >= self._not_before:
            with suppress(Exception):  # a picture: what is wrong with the results is for the report to say
                self._texts = ratio_texts(ended, self._suite)
            self._count = len(ended)
            self._not_before = time.monotonic() + max(_LEAST_S, (time.monotonic() - began) / _SHARE)
        return self._texts


def ratio_texts(ended: Sequence[TrialProgress], suite: Suite) -> dict[str, str]:
    """As `Ratios.of`. The interval is that of one comparison at one time; many are looked at many times, so all are undecided here."""
    from tasks.analysis.compare_cells import compared_pairs, laid_out_cells
    from tasks.analysis.judge_cells import ratio_of
    from tasks.analysis.trial_row import TrialRow
    from tasks.report.marks import Mark
    from tasks.report.text_format import TOO_WIDE, change, change_interval

    rows = [TrialRow(row.trial, row.result, row.result.summary, row.result.environment) for row in ended if row.result is not None]
    last = {row.trial.cell: row.trial.key for row in ended}
    emulated = bool(rows) and all(row.emulated for row in rows)
    texts = {}
    for cell, baseline in compared_pairs(laid_out_cells(rows, suite, emulated=emulated)):
        ratio = ratio_of(cell, baseline)
        interval = change_interval(ratio, cell.metric) if math.isfinite(ratio.se) else ""  # none while each has one trial
        parts = [change(ratio, cell.metric), "" if interval == TOO_WIDE else interval, Mark.UNDECIDED.sign]
        texts[last[cell.trial.cell]] = " ".join(part for part in parts if part)
    return texts
