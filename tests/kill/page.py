"""The results page of kill -9 rounds, written from their record alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WHAT = {
    "flow": "the command `sweep run`, in which the flow is",
    "trial": "one process of a trial",
    "prefect": "the Prefect server",
    "mlflow": "the MLflow server",
    "ray": "the Ray head",
}
_HELD = """What held in a round: the disturbed command ended with a right status (0 only where nothing was left to do), and after one
`sweep resume`, which ended with status 0,

- each trial is ok, its journal is whole and has each step once;
- a trial that the kill did not touch has one attempt, and no file of a trial that had ended before the resume changed;
- MLflow has one FINISHED run for each trial and each step of its journal once, with its time and value; no run is RUNNING;
- Prefect has no open flow run of the sweep;
- no process of the sweep runs; no command printed a traceback.
"""


def write(out: Path, record: Path) -> Path:
    """README.md in `out`, from the lines of `record`."""
    page = out / "README.md"
    page.write_text(text([json.loads(line) for line in record.read_text().splitlines()]))
    return page


def text(rounds: Sequence[dict[str, Any]]) -> str:
    """The page of these rounds."""
    parts = ["# kill -9 at random moments\n", _runs(rounds)]
    for servers, title in ((False, "On an embedded pool"), (True, "With the servers of `make up`")):
        some = [one for one in rounds if one["servers"] is servers]
        if some:
            parts += [f"## {title}\n", _table(some)]
    parts += ["## What held\n", _HELD, "## What did not\n", _failures(rounds)]
    parts.append("Written by `make test-kill` from rounds.jsonl, which has a line for each round.\n")
    return "\n".join(parts)


def _runs(rounds: Sequence[dict[str, Any]]) -> str:
    held = sum(not one["violations"] for one in rounds)
    lines = [
        f"**{held} of {len(rounds)} rounds held.** Each runs a sweep of three trials, kills one process at a moment drawn evenly over",
        "the time in which an undisturbed sweep has it, starts again what of `make up`'s servers was killed, and resumes the sweep.\n",
        "| date | commit | machine | with | seeds | rounds | held |",
        "|---|---|---|---|---|---|---|",
    ]
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in rounds:
        kind = "servers" if one["servers"] else "embedded pool"
        runs.setdefault((one["date"], one["commit"], one["machine"], kind), []).append(one)
    for run, some in runs.items():
        seeds = ", ".join(str(seed) for seed in sorted({one["seed"] for one in some}))
        lines.append(f"| {' | '.join(run)} | {seeds} | {len(some)} | {sum(not one['violations'] for one in some)} |")
    return "\n".join(lines) + "\n"


def _table(rounds: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| killed | rounds | held | moments, s | drawn from, s | trials that had ended | status of the disturbed command |",
        "|---|---|---|---|---|---|---|",
    ]
    for target, what in _WHAT.items():
        some = [one for one in rounds if one["target"] == target]
        if not some:
            continue
        held = sum(not one["violations"] for one in some)
        moments = [one["moment_s"] for one in some if one["moment_s"] is not None] or [0.0]
        begin, end = min(one["window_s"][0] for one in some), max(one["window_s"][1] for one in some)
        ended = _counts(one["ended_before"] for one in some)
        statuses = _counts(one["first_status"] for one in some)
        spans = f"{min(moments):.1f} to {max(moments):.1f} | {begin:.1f} to {end:.1f}"
        lines.append(f"| {what} | {len(some)} | {held} | {spans} | {ended} | {statuses} |")
    new = sum(one["new"] for one in rounds)
    if new:
        lines.append(f"\nIn {new} of these rounds the databases of MLflow and Prefect were not there yet, and were made in the round.")
    return "\n".join(lines) + "\n"


def _counts(values: Any) -> str:
    """0: 3 times, 1: once."""
    found = Counter(values)
    return ", ".join(f"{value}: {count}x" for value, count in sorted(found.items(), key=str))


def _failures(rounds: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"- {one['target']} killed {one['moment_s']} s into round {one['number']} of seed {one['seed']}, commit {one['commit']}: "
        + "; ".join(one["violations"])
        for one in rounds
        if one["violations"]
    ]
    return "\n".join(lines or ["Nothing."]) + "\n"
