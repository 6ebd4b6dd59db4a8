"""Close a sweep's own run in MLflow, log its reports, and close all other runs of the sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cluster.trial_layout import REPORT
from experiments.trial import Outcome
from tasks.tracking import pages
from tasks.tracking.runs import ALL_PUBLISHED, SweepRuns
from tasks.tracking.settle_runs import settle
from tasks.tracking.values import set_metrics


def finish_sweep(
    runs: SweepRuns,
    states: Mapping[str, Outcome | None],
    artifacts: Iterable[Path],
    reason: str | None,
    metrics: Mapping[str, float],
    *,
    headline: str = "",
    published: str = "",
) -> None:
    """Close the sweep's runs. `states`: trial key -> outcome, None if not run. `reason`: why the sweep ended early; None if it did not.

    `headline`: what it found, in Markdown, for its note. `published`: `digest_of` the runs of its trials where all are complete: set last,
    so that who finds it finds everything else.
    """
    client = runs.client
    runs.parent = runs.find_parent()  # after a lost reply there may be two
    settle(runs, {trial.key for trial in runs.plan.trials}, reason or "its flow ended before it did")
    for path in artifacts:
        _log_artifact(runs, path)
    set_metrics(client, runs.parent, metrics, counts="trials_")
    if reason:
        client.set_tag(runs.parent, "reason", reason)
    elif is_complete(states) and "reason" in client.get_run(runs.parent).data.tags:
        client.delete_tag(runs.parent, "reason")
    if headline:
        describe_sweep(runs, headline)
    client.set_tag(runs.parent, ALL_PUBLISHED, published)
    client.set_terminated(runs.parent, sweep_status(states))


_LONGEST = 5000  # characters of a note's first part; MLflow takes 8000 in a tag


def describe_sweep(runs: SweepRuns, headline: str) -> None:
    """Put what the sweep found, in Markdown, first in the note of its own run. A note that a person wrote stays."""
    headline = headline if len(headline) <= _LONGEST else f"{headline[:_LONGEST]} …"
    tags = runs.client.get_run(runs.parent).data.tags
    ours = [pages.sweep_note(runs.plan, runs.experiment_id, said) for said in ("", tags.get(pages.HEADLINE, ""))]
    if tags.get(pages.NOTE, ours[0]) in ours:
        runs.client.set_tag(runs.parent, pages.HEADLINE, headline)
        runs.client.set_tag(runs.parent, pages.NOTE, pages.sweep_note(runs.plan, runs.experiment_id, headline))


def is_complete(states: Mapping[str, Outcome | None]) -> bool:
    """True if every trial has ended and none was cancelled."""
    return all(outcome is not None and outcome is not Outcome.CANCELLED for outcome in states.values())


def sweep_status(states: Mapping[str, Outcome | None]) -> str:
    """MLflow's status of the sweep's run: FINISHED, FAILED or KILLED."""
    if all(outcome is not None and outcome.expected for outcome in states.values()):
        return "FINISHED"
    return "FAILED" if is_complete(states) else "KILLED"


def _log_artifact(runs: SweepRuns, path: Path) -> None:
    if path.is_dir():
        runs.client.log_artifacts(runs.parent, str(path), path.name)
    elif path.name == REPORT:
        text = pages.linked_figures(path.read_text(), runs.experiment_id, runs.parent)
        runs.client.log_text(runs.parent, text, path.name)
    elif path.exists():
        runs.client.log_artifact(runs.parent, str(path))
