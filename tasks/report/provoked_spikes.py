"""Steps whose gradient a trial made larger on purpose (`signal_every`), and which of them a loss spike followed."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.stats.loss_spikes import LossSpikes
from tasks.analysis.trial_row import TrialRow

COLUMN = "after a provocation"
ABOUT = (
    "After a provocation: of the steps from which on the gradient is larger on purpose, how many a loss spike followed that began {} to {} "
    "steps later."
)


def followed(results: Sequence[tuple[TrialRow, LossSpikes]]) -> tuple[int, int]:
    """(provocations that a loss spike followed, provocations), over a cell's repeats: of those that are judged, and whose trial went on for
    as long as a spike may begin later. (0, 0) where nothing is provoked."""
    hits = count = 0
    for row, result in results:
        low, high = result.rule.lead
        begins = [event.first for event in result.loss]
        for step in _provoked(row):
            if result.rule.after < step <= int(row.steps.max()) - high:
                count += 1
                hits += any(low <= first - step <= high for first in begins)
    return hits, count


def _provoked(row: TrialRow) -> range:
    """The first step of each larger gradient. The workload counts batches from 0, steps begin with 1; none where a step has several
    batches."""
    values = row.trial.parameters
    every, factor = values.get("signal_every"), values.get("signal_factor")
    if not every or factor in (None, 1) or values.get("accumulation_steps", 1) != 1 or not row.steps.size:
        return range(0)
    return range(int(every) + 1, int(row.steps.max()) + 1, int(every))
