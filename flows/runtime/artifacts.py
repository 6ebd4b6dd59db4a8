"""What a person sees on the flow run's page in the Prefect UI: progress, each trial's figures, the comparison table.

Keys name the suite and the trial, not the sweep: so Prefect's page of an artifact is its history over the sweeps.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact, update_progress_artifact

from cluster.trial_layout import REPORT
from experiments.config.errors import ConfigError
from experiments.metrics import metric_of
from experiments.trial import Trial, TrialResult
from flows.runtime.progress import SweepProgress
from tasks.analysis.cell import is_number
from tasks.nightly.store import Night
from tasks.report.text_format import quantity
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking import pages
from tasks.tracking.projection import Published

_progress: dict[str, Any] = {}


def progress(plan: Plan, now: SweepProgress) -> None:
    """Percent of trials done, one artifact for each sweep."""
    done, total = now.counts()
    grown = f" so far, {now.note}" if now.grows and now.note else ""
    percent, text = 100 * done / max(1, total), f"{done} of {total} trials of {plan.sweep_id}{grown}"
    with suppress(Exception):  # a lost Prefect server costs a picture, not a sweep
        if plan.sweep_id in _progress:
            update_progress_artifact(_progress[plan.sweep_id], percent, description=text)
        else:
            _progress[plan.sweep_id] = create_progress_artifact(percent, key=_key(plan.name, "progress"), description=text)


def trial(trial: Trial, result: TrialResult) -> None:
    """The trial's outcome and summary as a table."""
    rows = [
        {"figure": "outcome", "value": str(result.outcome)},
        *([{"figure": "emulated", "value": "true: nothing here is a measurement"}] if result.emulated else []),
        *([{"figure": "reason", "value": result.reason}] if result.reason else []),
        *({"figure": name, "value": _with_unit(name, value)} for name, value in result.summary.items() if value is not None),
    ]
    with suppress(Exception):
        create_table_artifact(rows, key=_key(trial.suite, trial.name), description=f"{trial.name}, trial {trial.key} of {trial.sweep_id}")


def _with_unit(name: str, value: Any) -> str:
    """`581.5 samples/s` of a summary's figure; without a unit where it is no number of a metric that the registry knows."""
    if is_number(value):
        with suppress(ConfigError):
            return quantity(value, metric_of(name))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def sweep(store: SweepStore, plan: Plan, published: Published | None) -> None:
    """The report, its figures taken from MLflow's server where one runs."""
    with suppress(Exception):
        text = (store.dir / REPORT).read_text()
        if published is not None and published.served:
            compare = f"Compare the trials in MLflow: [table]({published.table}) · [charts]({published.charts})"
            text = f"{compare}\n\n{pages.with_figures(text, published.parent, published.base)}"
        else:
            text = pages.without_figures(text)
        create_markdown_artifact(text, key=_key(plan.name, "report"), description=plan.sweep_id)


def night(night: Night, text: str) -> None:
    """A night's verdicts; the page of this key is their history over the nights."""
    with suppress(Exception):
        create_markdown_artifact(pages.without_figures(text), key=_key("nightly", f"{night.name} verdicts"), description=night.date)


def _key(suite: str, what: str) -> str:
    """Lower-case letters, digits and dashes: all that Prefect takes."""
    return re.sub(r"[^a-z0-9]+", "-", f"{suite} {what}".lower()).strip("-")
