"""What the looks of a sweep found, kept beside it: a look is judged once, however many come after it.

.looks.json has what the looks up to one of them found, by a checksum of all that this follows from: the looks, the suite, every trial that
they saw, what past sweeps know of the spread, and the code. It is used only where that is the same; so verdicts are those that judging all
looks again would give. The file has a seal. It can be removed at any time; one that is damaged counts as none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster.trial_layout import LOOKS
from experiments.spec.schema import Suite
from experiments.stats.estimate import Estimate
from experiments.stats.interim_looks import Look
from experiments.stats.spread import SpreadLookup
from experiments.stats.verdict import Levels, Verdict
from tasks.analysis.judge_cells import Comparison
from tasks.analysis.look_result import LookResult
from tasks.analysis.spread_store import device_of
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.kept_file import read_kept, write_kept
from tasks.sweep.whole_records import code_digest

_MOST = 4  # entries: with and without what past sweeps know, of the last look and of the one before


def inputs_of(rows: Sequence[TrialRow], suite: Suite, looks: Sequence[Look], known: SpreadLookup | None) -> str:
    """64 hex digits of all that `seen` of these looks follows from. `rows`: the trials that the last of them saw."""
    metric = suite.report.metric
    places = dict.fromkeys((row.trial.pool, device_of(row), row.trial.workload, metric) for row in rows)
    spreads = [] if known is None else [[*place, repr(known(*place))] for place in places]
    content = hashlib.sha256()
    for part in (code_digest(), suite.model_dump_json(), [look.model_dump() for look in looks], spreads):
        content.update(json.dumps(part).encode() + b"\n")
    for row in rows:
        told = [row.trial.key, row.outcome, row.disturbed, row.problem, row.result and [row.result.started_at, row.result.finished_at]]
        content.update(row.trial.model_dump_json().encode())
        content.update(json.dumps([told, dict(row.summary), dict(row.environment), dict(row.packages)], default=str).encode() + b"\n")
        content.update(row.steps.tobytes() + row.losses.tobytes())
    return content.hexdigest()


def read_results(folder: Path | None, inputs: str) -> dict[str, LookResult] | None:
    """What was found from these inputs, by the hash of the cell; None where it is not kept."""
    for entry in _entries(folder):
        if entry["inputs"] == inputs:
            return {cell: _result(one) for cell, one in json.loads(entry["seen"]).items()}
    return None


def keep_results(folder: Path | None, inputs: str, seen: Mapping[str, LookResult]) -> None:
    """Keep what was found from these inputs. A folder that is no sweep's or cannot be written keeps nothing."""
    if folder is None:
        return
    text = json.dumps({cell: asdict(one) for cell, one in seen.items()})
    write_kept(folder / LOOKS, {"looks": [*_entries(folder), {"inputs": inputs, "seen": text}][-_MOST:]})


def _entries(folder: Path | None) -> list[dict[str, str]]:
    return [] if folder is None else list(read_kept(folder / LOOKS).get("looks", []))


def _result(kept: Mapping[str, Any]) -> LookResult:
    found = Comparison(Estimate(**kept["found"]["ratio"]), Verdict(kept["found"]["verdict"]), kept["found"]["why_undecided"])
    return LookResult(found, Levels(**kept["levels"]), kept["round"], kept["p"])
