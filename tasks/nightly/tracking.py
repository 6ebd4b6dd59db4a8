"""A night's verdicts in MLflow: tags and metrics of its sweep's run, a tag of each cell's runs, and its report beside the sweep's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.regression.history_segments import Change
from tasks.nightly.accept import change_tag
from tasks.nightly.report import headline
from tasks.nightly.store import Night
from tasks.sweep.store import Plan
from tasks.tracking import pages
from tasks.tracking.client import connect, tracking_uri, ui_url
from tasks.tracking.runs import SweepRuns
from tasks.tracking.values import set_metrics

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

VERDICT = "night.verdict"  # tag of the sweep's run, and of each run of a cell that was judged


def publish_night(night: Night, plan: Plan, files: Iterable[Path], changes: Iterable[Change]) -> list[tuple[str, str]]:
    """Write the verdicts to the sweep's run; repeating it changes nothing. Returns links as (name, address). Raises what MLflow raises."""
    client = connect()
    runs = SweepRuns(client, plan)
    words: dict[str, list[str]] = {}
    for item in night.cell_verdicts:
        words.setdefault(item.cell, []).append(f"{item.metric}={item.verdict}")
    tags = {VERDICT: headline(night), **{f"{VERDICT}.{cell}": "; ".join(texts)[:5000] for cell, texts in words.items()}}
    for found in night.bisections:
        tags[f"night.commit.{found.cell}"] = found.sentence[:5000]
    for change in changes:
        if change.accepted_on == night.date:
            name, value = change_tag(change)
            tags[name] = value
    for name, value in tags.items():
        client.set_tag(runs.parent, name, value)
    _tag_trials(client, runs, {cell: "; ".join(texts)[:5000] for cell, texts in words.items()})
    counts = Counter(f"cells_{item.verdict}" for item in night.cell_verdicts)
    set_metrics(client, runs.parent, {name: float(count) for name, count in counts.items()}, counts="cells_")
    for path in files:
        if path.is_dir():
            client.log_artifacts(runs.parent, str(path), "night/figures")
        elif path.exists():
            client.log_artifact(runs.parent, str(path), "night")
    base = f"{ui_url()}/" if tracking_uri().startswith("http") else ""
    return [("MLflow", base + pages.run_link(runs.experiment_id, runs.parent))] if base else []


def _tag_trials(client: MlflowClient, runs: SweepRuns, verdicts: Mapping[str, str]) -> None:
    """The verdict on a cell, on each of its own runs: what MLflow's table of runs can be filtered by."""
    for run in runs.attempts():
        verdict = verdicts.get(run.data.tags.get("night.cell", ""))
        if verdict and run.data.tags.get("night.role") == "history" and run.data.tags.get(VERDICT) != verdict:
            client.set_tag(run.info.run_id, VERDICT, verdict)
