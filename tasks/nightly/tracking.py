"""A night's verdicts in MLflow: tags and metrics of its sweep's run, and its report beside the sweep's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from experiments.regression.history_segments import Change
from tasks.nightly.accept import change_tag
from tasks.nightly.report import headline
from tasks.nightly.store import Night
from tasks.sweep.store import Plan
from tasks.tracking import pages
from tasks.tracking.client import connect, tracking_uri, ui_url
from tasks.tracking.runs import SweepRuns


def publish_night(night: Night, plan: Plan, files: Iterable[Path], changes: Iterable[Change]) -> list[tuple[str, str]]:
    """Write the verdicts to the sweep's run; repeating it changes nothing. Returns links as (name, address). Raises what MLflow raises."""
    client = connect()
    runs = SweepRuns(client, plan)
    words: dict[str, list[str]] = {}
    for item in night.cell_verdicts:
        words.setdefault(item.cell, []).append(f"{item.metric}={item.verdict}")
    tags = {"night.verdict": headline(night), **{f"night.verdict.{cell}": "; ".join(texts)[:5000] for cell, texts in words.items()}}
    for change in changes:
        if change.accepted_on == night.date:
            name, value = change_tag(change)
            tags[name] = value
    for name, value in tags.items():
        client.set_tag(runs.parent, name, value)
    counts = Counter(f"cells_{item.verdict}" for item in night.cell_verdicts)
    for name, count in counts.items():
        client.log_metric(runs.parent, name, float(count), timestamp=round(night.opened_at * 1000))
    for path in files:
        if path.is_dir():
            client.log_artifacts(runs.parent, str(path), "night/figures")
        elif path.exists():
            client.log_artifact(runs.parent, str(path), "night")
    base = f"{ui_url()}/" if tracking_uri().startswith("http") else ""
    return [("MLflow", base + pages.run_link(runs.experiment_id, runs.parent))] if base else []
