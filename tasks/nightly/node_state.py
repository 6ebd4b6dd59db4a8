"""How a node is, by its canary: a load whose code never changes. And whether a cell's change is the code's or the node's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.regression.decision import as_estimate, decide, word
from experiments.regression.definition import METRICS, NightFile
from experiments.stats.verdict import Verdict
from tasks.nightly.comparison import Comparison, counted_nights, counted_tonight, effects_of, worsening
from tasks.nightly.history import History, Measured, what_changed
from tasks.nightly.store import CHANGED, Night, NightCell, NodeState, Where

_SOFTWARE = ("code", "libraries", "torch", "driver", "image")  # facts that may change a canary though its node did not


def node_states(definition: NightFile, night: Night, past: History, now: History) -> list[NodeState]:
    """The verdict on each host of each pool on which a canary ran tonight."""
    states = []
    for cell in night.cells:
        if cell.role != "canary":
            continue
        tonight = now.of(cell.cell, "canary").get(night.date, [])
        for host in dict.fromkeys(trial.host for trial in tonight):
            here = counted_tonight([trial for trial in tonight if trial.host == host], cell.metrics[0])
            states.append(_node_state(definition, cell, host, counted_nights(past.of(cell.cell, "canary"), cell.metrics[0]), here))
    return states


def _node_state(definition: NightFile, cell: NightCell, host: str, past: Mapping[str, list[Measured]], now: list[Measured]) -> NodeState:
    """The canary against its own nights on that host; against its nights on any host where it has too few there."""
    here = {date: [trial for trial in trials if trial.host == host] for date, trials in past.items()}
    here = {date: trials for date, trials in here.items() if trials}
    if len(here) < definition.least_nights:
        here = dict(past)
    baseline = sorted(here)[-definition.baseline_nights :]
    comparison = Comparison(cell, cell.metrics[0], baseline, here, now, {}, [], [])
    effects = effects_of([comparison], definition.least_nights)
    if not math.isfinite(float(effects.effect[0])):
        note = f"{len(baseline)} of the {definition.least_nights} nights that a baseline needs"
        return NodeState(pool=cell.pool, host=host, verdict=Verdict.UNDECIDED, note=note)
    alpha, minimum = definition.alpha, comparison.minimum
    codes, _ = decide(effects, np.array([minimum]), np.array([alpha]), alpha=alpha, fdr=definition.false_discovery_rate)
    ratio = as_estimate(effects, 0, len(now))
    detectable = float(effects.detectable(len(now), alpha=alpha, minimum=math.log1p(minimum))[0])
    software = [text for text in what_changed(here[baseline[-1]], now) if text.split(" ")[0] in _SOFTWARE]
    notes = [f"every trial of the canary was disturbed: {comparison.disturbed}"] if comparison.disturbed else []
    notes += [f"the canary's own {', '.join(software)}: the node and the software cannot be told apart"] if software else []
    return NodeState(
        pool=cell.pool,
        host=host,
        verdict=Verdict.UNDECIDED if comparison.disturbed else word(codes[0]),
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        detectable=worsening(detectable, comparison.metric),
        note="; ".join(notes) or None,
    )


def code_or_node(comparison: Comparison, verdict: Verdict, raw: float, nodes: Sequence[NodeState]) -> tuple[Where | None, str | None]:
    """Where a cell's change comes from, and a sentence about it; None for what there is not to say.

    `raw`: the cell's effect with nothing of the canary subtracted, as a logarithm.
    """
    hosts = {trial.host for trial in comparison.now}
    moved = [
        node
        for node in nodes
        if node.pool == comparison.cell.pool and node.host in hosts and node.verdict in CHANGED and node.ratio is not None
    ]
    depends_on_node = METRICS[comparison.metric].depends_on_node
    if not moved or not depends_on_node:
        if verdict not in CHANGED:
            return None, None
        if depends_on_node and not comparison.canary_now:
            return "code or node", "no undisturbed canary ran on its node tonight"
        return "code", None
    sentence = "; ".join(f"node {node.host} is {abs((node.ratio or 1) - 1):.1%} {node.verdict}" for node in moved)
    notes = [node.note for node in moved if node.note]
    if verdict in CHANGED:
        return ("code or node" if notes else "code and node"), "; ".join([f"{sentence}; this is what remains", *notes])
    if abs(raw) >= math.log1p(comparison.minimum):
        return ("code or node" if notes else "node"), "; ".join([f"{sentence}, and the cell with it ({math.expm1(raw):+.1%})", *notes])
    return None, sentence
