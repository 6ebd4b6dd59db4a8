"""Fill the MLflow run of a trial's attempt from its journal: step by step while it runs, and completely at its end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.journal.journal import Journal
from cluster.journal.lines import Record
from cluster.trial_layout import LOG, STEPS, TRACE
from experiments.step_record import metrics_of
from experiments.summary import summarise
from experiments.trial import Outcome, Trial, TrialResult
from tasks.tracking.runs import PUBLISHED, SweepRuns
from tasks.tracking.values import log_metrics, log_tags, milliseconds, prefixed_tags

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient


PACKAGES = "packages.txt"  # artifact: name==version of all that was installed


def log_records(client: MlflowClient, run_id: str, records: Iterable[Record]) -> None:
    """Log the metrics of `step` records with the journal's timestamps."""
    log_metrics(client, run_id, list(step_metrics(records)))


def finish_trial(
    runs: SweepRuns, trial: Trial, journal: Journal, result: TrialResult, trial_dir: Path, sent_steps: Collection[int] = frozenset()
) -> str:
    """Complete and close one run: every step once, summary, environment, steps.parquet and outcome. Returns the run's id.

    `journal`: the attempt that the result is of; empty where it left none. A run that is already complete with the same content is not
    changed. `sent_steps`: steps that MLflow already has. Sending them again would change nothing, but would take as long as the first time.
    """
    client = runs.client
    run_id = runs.trial_run(trial, result.attempt, result.started_at)
    made_of = stamp_of(journal, result)
    if runs.published(trial.key, result.attempt) == made_of:
        return run_id
    log_records(client, run_id, [record for record in journal.steps if record["step"] not in sent_steps])
    log_metrics(client, run_id, list(_summary_metrics(journal, result)))
    log_tags(client, run_id, _end_tags(trial, journal, result))
    _log_files(client, run_id, trial_dir)
    if journal.packages:
        client.log_text(run_id, "".join(f"{name}=={version}\n" for name, version in journal.packages.items()), PACKAGES)
    client.set_tag(run_id, PUBLISHED, made_of)  # last: a run with this tag is complete
    client.set_terminated(run_id, _status(result.outcome), end_time=milliseconds(result.finished_at))
    runs.note_published(trial.key, result.attempt, made_of)
    return run_id


def stamp_of(journal: Journal, result: TrialResult) -> str:
    """Value of the tag PUBLISHED of a whole run: what it was made of."""
    return stamp(journal.checksum, result)


def stamp(checksum: str, result: TrialResult) -> str:
    """As `stamp_of`, of a journal with this checksum."""
    return f"{checksum}-{result.outcome}"


def step_metrics(records: Iterable[Record]) -> Iterable[Metric]:
    """The metrics of `step` records (see experiments.step_record) by step, without values that are not finite."""
    from mlflow.entities import Metric

    for record in records:
        if record.get("kind") != "step":
            continue
        at, step = milliseconds(record["t"]), int(record["step"])
        for name, value in metrics_of(record).items():
            if value is not None and math.isfinite(value):
                yield Metric(name, float(value), at, step)


def _summary_metrics(journal: Journal, result: TrialResult) -> Iterable[Metric]:
    """The summary metrics, at the time of the trial's end: recomputed from a complete journal, with those of the device's state, which only
    the result has; else those of the result."""
    from mlflow.entities import Metric

    complete = journal.window is not None and result.outcome is Outcome.OK
    summary = summarise(journal.steps, journal.window, journal.evaluations) if complete else {}
    for name, value in {**result.summary, **summary}.items():
        if value is not None and math.isfinite(float(value)):
            yield Metric(name, float(value), milliseconds(result.finished_at), 0)


def _end_tags(trial: Trial, journal: Journal, result: TrialResult) -> dict[str, str]:
    return {
        "trial.outcome": str(result.outcome),
        **({"reason": result.reason or str(result.outcome)} if result.outcome is not Outcome.OK else {}),
        **{name: text for name, text in (("disturbed", result.disturbed), ("not_judged", result.not_judged)) if text},
        "emulated": str(trial.emulated or result.emulated).lower(),  # the device itself may report that it is emulated
        **prefixed_tags("env", journal.environment or result.environment),
    }


def _log_files(client: MlflowClient, run_id: str, trial_dir: Path) -> None:
    for name in (STEPS, LOG):
        if (trial_dir / name).exists():
            client.log_artifact(run_id, str(trial_dir / name))
    if (trial_dir / TRACE).exists():
        client.log_artifact(run_id, str(trial_dir / TRACE), "profile")


def _status(outcome: Outcome) -> str:
    """MLflow's status of a trial's run: FINISHED, FAILED or KILLED."""
    if outcome is Outcome.OK:
        return "FINISHED"
    return "KILLED" if outcome is Outcome.CANCELLED else "FAILED"
