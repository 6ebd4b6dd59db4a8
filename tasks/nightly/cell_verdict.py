"""The verdicts on one metric of many cells: each cell against its own history, the false discovery rate held over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.regression.decision import as_estimate, decide, word
from experiments.regression.definition import NightFile, word_of
from experiments.regression.effect import NightEffect, night_value
from experiments.regression.screen import BETTER, UNSURE, WORSE, looks_changed
from experiments.stats.interim_levels import interim_levels
from experiments.stats.verdict import Verdict
from tasks.nightly.comparison import Comparison, effects_of, values_of, worsening
from tasks.nightly.history import what_changed
from tasks.nightly.node_state import code_or_node
from tasks.nightly.store import CHANGED, CellVerdict, NodeState


def cell_verdicts(definition: NightFile, comparisons: Sequence[Comparison], nodes: Sequence[NodeState], tonight: str) -> list[CellVerdict]:
    """The verdict on each comparison, all of one metric and one role, in their order. `tonight` is a date.

    What was measured in disturbed trials alone is shown, undecided, and has no part in the false discovery rate.
    """
    if not comparisons:
        return []
    effects = effects_of(comparisons, definition.least_nights)
    minimum = np.array([each.minimum for each in comparisons])
    levels = np.array([_level(definition, len(values_of(each.now, each.metric))) for each in comparisons])
    kept = replace(effects, effect=np.where([bool(each.disturbed) for each in comparisons], np.nan, effects.effect))
    codes, q_values = decide(kept, minimum, levels, alpha=definition.alpha, fdr=definition.false_discovery_rate)
    verdicts = []
    for index, comparison in enumerate(comparisons):
        verdict = word(codes[index])
        if math.isfinite(float(effects.effect[index])):
            more = _compared(definition, comparison, effects, index, verdict)
            more["q_value"] = float(q_values[index])
            if comparison.disturbed:
                more["why"] = f"every trial was disturbed: {comparison.disturbed}"
            else:
                more["where"], more["why"] = code_or_node(comparison, verdict, float(effects.raw[index]), nodes)
        else:
            needs = definition.least_nights if len(comparison.baseline) < definition.least_nights else None
            more = {"why": _why_unknown(definition, comparison), "alarm_since": None, "needs": needs}
        verdicts.append(_uncompared(comparison, verdict, tonight).model_copy(update=more))
    return verdicts


def _level(definition: NightFile, repeats: int) -> float:
    """The significance level of the latest interim analysis that so many repeats have reached."""
    counts = definition.interim_repeats
    levels = interim_levels(counts, definition.alpha)
    reached = [level for count, level in zip(counts, levels, strict=True) if repeats >= count]
    return reached[-1] if reached else levels[0]


def _uncompared(comparison: Comparison, verdict: Verdict, tonight: str) -> CellVerdict:
    """What is known without a baseline."""
    cell = comparison.cell
    values = values_of(comparison.now, comparison.metric)
    since = tonight if verdict in CHANGED else None
    return CellVerdict(
        cell=cell.cell,
        name=cell.name,
        role=cell.role,
        metric=comparison.metric,
        verdict=verdict,
        word=word_of(verdict, comparison.metric),
        value=float(np.exp(night_value(np.log(values)))) if values and min(values) > 0 else None,
        minimum=comparison.minimum,
        repeats=len(values),
        baseline=comparison.baseline,
        uncounted=comparison.uncounted,
        disturbed=comparison.disturbed,
        alarm_since=comparison.alarm[0] if comparison.alarm else since,
    )


def _compared(definition: NightFile, comparison: Comparison, effects: NightEffect, index: int, verdict: Verdict) -> dict[str, object]:
    """What the comparison with the baseline adds: the effect, how certain it is, and what changed with it."""
    ratio = as_estimate(effects, index, len(values_of(comparison.now, comparison.metric)))
    minimum = math.log1p(comparison.minimum)
    smallest = effects.detectable(definition.interim_repeats[-1], alpha=definition.alpha, minimum=minimum)[index]
    looked = _looked(comparison, effects, index, verdict)
    explained = looked is not None or (verdict in CHANGED and comparison.cell.role == "history")
    last = [trial for date in comparison.baseline[-1:] for trial in comparison.past[date]]
    return {
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "raw": float(np.exp(effects.raw[index])),
        "within": float(effects.within[index]),
        "looked": looked,
        "p_value": float(effects.p_value[index]),
        "share": float(effects.share[index]),
        "detectable": worsening(float(smallest), comparison.metric),
        "causes": what_changed(last, comparison.now) if explained else [],
    }


def _looked(comparison: Comparison, effects: NightEffect, index: int, verdict: Verdict) -> Verdict | None:
    """What the screen sees of a cell, None for nothing. A metric besides its first is worth pairs only where it would be an alarm."""
    if comparison.cell.role != "history":
        return None
    if comparison.metric != comparison.cell.metrics[0]:
        return verdict if verdict in CHANGED else None
    seen = int(looks_changed(effects, np.array(comparison.minimum))[index])
    return {WORSE: Verdict.SLOWER, BETTER: Verdict.FASTER, UNSURE: Verdict.UNDECIDED}.get(seen)


def _why_unknown(definition: NightFile, comparison: Comparison) -> str:
    values = values_of(comparison.now, comparison.metric)
    if not values:
        return "not measured tonight"
    if min(values) <= 0:
        return "not above 0: its ratio has no meaning"
    have, need = len(comparison.baseline), definition.least_nights
    return f"{have} of the {need} nights that a baseline needs" if have < need else "its nights have no value of this metric"
