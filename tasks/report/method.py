"""How the values, intervals and verdicts of a report come about, in a few words: its last lines."""

from __future__ import annotations

from experiments.metric import Metric, Scale
from experiments.stats.verdict import CHANCE, DISCOVERY
from tasks.analysis.judge_cells import smallest_effect
from tasks.report.text_format import difference, percent


def method_of(metric: Metric | None, minimum: float | None) -> str:
    """`metric`: the table's, None of a report without cells. `minimum`: the suite's smallest effect that decides, None of its default."""
    values = (
        "Throughput is the samples of the measured window over its wall time, summed over ranks. A value's interval has a confidence of "
        "95 %: of one trial from the noise of its steps, over repeats a t interval; that of a ratio has what its table says."
    )
    if metric is None:
        return values
    effect = smallest_effect(metric, minimum)
    if metric.scale is Scale.LOG:
        off, within = f"the ratio is off 1 by at least {percent(effect)}", f"within {percent(effect)} of 1"
    else:
        size = difference(effect, metric)
        off, within = f"the difference is at least {size}", f"within {size} of 0"
    return (
        f"{values} A cell is faster or slower (better or worse) than another where {off}, its p-value is below {percent(CHANCE)} and the "
        f"false discovery rate over the table's comparisons is below {percent(DISCOVERY)} (Benjamini and Hochberg); it is the same where "
        f"the whole interval lies {within}, and undecided else. How often this is wrong: docs/verdicts.md."
    )
