"""Of which kinds the traced steps were, where a workload has several, and whether what they reached can be told.

FLOPs of a sample are of the mix of all kinds, so they are those of traced steps only where these are as many of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.journal.lines import Record
from experiments.step_record import batches_of, whole_rounds
from experiments.trial import Trial
from tasks.analysis.early_records import traced_kinds
from tasks.analysis.trial_row import LEFT_OUT

_OF_THE_MIX = ("ranks", "products", "not_measured")  # what is known of the traced steps of a mix like the window's alone
NOT_RECORDED = "not shown, since it was not recorded which kinds of step were traced, and FLOPs are of the mix of all"


def with_kinds(profile: Mapping[str, Any], trial: Trial, window: Mapping[str, Any], steps: Sequence[Record]) -> dict[str, Any]:
    """`profile`, a trial's record of its traced steps, with the kinds of these (`step_kinds`) where `steps`, those of its window, have
    several; without what they reached, and with the reason under LEFT_OUT, where they are not as many of each kind."""
    micro_batches = int(trial.parameters.get("accumulation_steps") or 1)
    seen = {str(step["step_kind"]) for step in steps if step.get("step_kind")}
    every = sorted({batch for kind in seen for batch in batches_of(kind, micro_batches)})
    if len(every) < 2:
        return dict(profile)
    told = profile.get("step_kinds") or traced_kinds(trial, window, steps, int(profile.get("steps") or 0))
    found = {**profile, "step_kinds": told}
    counted = told[1:] or told  # the first of several does not count (counted_steps in cluster/worker/measure/trace_parts.py)
    if profile.get("where") != "device" or whole_rounds(counted, seen, micro_batches):
        return found
    why = f"not shown, since the traced steps that count ({', '.join(map(str, counted))}) are not as many of each kind of step "
    why += f"({', '.join(every)}), and FLOPs are of the mix of all"
    return {**{name: value for name, value in found.items() if name not in _OF_THE_MIX}, LEFT_OUT: why if told else NOT_RECORDED}
