"""Find and create the MLflow runs of a sweep. Experiment = suite, parent run = sweep, nested run = one attempt of a trial.

MLflow is a projection of the journals: every function of this package can be repeated at any time and gives the same runs. A run is looked
up by its tags before one is created, timestamps come from the journal, and MLflow ignores a metric row that it already has. All runs of a
sweep are looked up at once, by the first who asks: a query for each trial takes the longer, the more runs there are. After a lost server, a
lost reply or a killed flow it is enough to repeat the projection, with new `SweepRuns`. log_trial.py fills a trial's run, finish_sweep.py
closes the sweep's, and settle_runs.py closes the runs without an active attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.config.paths import runs_root
from experiments.trial import Trial, digest
from tasks.sweep.store import Plan
from tasks.tracking import pages
from tasks.tracking.client import is_local, tracking_uri
from tasks.tracking.run_names import run_name, telling_axes
from tasks.tracking.values import log_params, milliseconds, prefixed_tags

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

PUBLISHED = "trial.published"  # tag of a complete run; its value identifies the published content
ALL_PUBLISHED = "sweep.published"  # tag of a sweep's own run: `digest_of` its trials' runs where all are complete, else empty


@dataclass
class Known:
    """The run of an attempt. `stamp`: its tag PUBLISHED, where it has ended."""

    run_id: str
    stamp: str | None = None


class SweepRuns:
    """The runs of one sweep in MLflow. Creates missing ones. Keeps one run of several duplicates, which a lost reply can cause."""

    def __init__(self, client: MlflowClient, plan: Plan) -> None:
        self.client, self.plan = client, plan
        self.experiment_id = find_experiment(client, plan.name)
        self.parent = self.find_parent()
        self._describe_experiment()
        self._known: dict[tuple[str, str], Known] | None = None  # by a trial's key and the attempt
        self._axes: list[str] | None = None  # that its trials' names begin with

    def find_parent(self) -> str:
        """Id of the sweep's own run, created if there is none."""
        plan = self.plan
        existing = self._search(pages.parent_of(plan.sweep_id))
        if existing:
            return str(keep_canonical(self.client, existing).info.run_id)
        tags = {
            "sweep.id": plan.sweep_id,
            "sweep.role": "parent",
            "sweep.profile": plan.profile,
            "sweep.command": plan.command,
            pages.NOTE: pages.sweep_note(plan, self.experiment_id),
            **pages.source_tags(plan),
            **prefixed_tags("git", plan.git),
            **plan.labels,
        }
        return self._create(plan.sweep_id, plan.created_at, tags)

    def trial_run(self, trial: Trial, attempt: int, started_at: float) -> str:
        """Id of the run of one attempt, created if there is none. `started_at` (Unix time, s): start time of a new run."""
        if (known := self._of_attempt(trial.key, attempt)) is not None:
            return known.run_id
        if self._axes is None:
            self._axes = telling_axes(self.plan)
        run_id = self._create(run_name(trial, attempt, self._axes), started_at, self._trial_tags(trial, attempt))
        own = {name: value for name, value in trial.parameters.items() if name not in trial.axes}
        log_params(self.client, run_id, {**own, **trial.axes, "repeat": trial.repeat})
        assert self._known is not None
        self._known[trial.key, str(attempt)] = Known(run_id)
        return run_id

    def published(self, key: str, attempt: int) -> str | None:
        """What the run of an attempt was made of, by its tag PUBLISHED, where it is complete and has ended."""
        known = self._of_attempt(key, attempt)
        return known.stamp if known else None

    def note_published(self, key: str, attempt: int, stamp: str) -> None:
        """The run of an attempt is complete now."""
        known = self._of_attempt(key, attempt)
        if known is not None:
            known.stamp = stamp

    def _of_attempt(self, key: str, attempt: int) -> Known | None:
        if self._known is None:
            runs = {(run.data.tags["trial.key"], run.data.tags["trial.attempt"]): run for run in self.attempts()}
            ended = {name: None if run.info.status == "RUNNING" else run.data.tags.get(PUBLISHED) for name, run in runs.items()}
            self._known = {name: Known(str(run.info.run_id), ended[name]) for name, run in runs.items()}
        return self._known.get((key, str(attempt)))

    def attempts(self) -> list[Run]:
        """The runs of all attempts of the sweep's trials, one each."""
        same: dict[tuple[str, str], list[Run]] = {}
        for run in self._search(pages.trials_of(self.plan.sweep_id)):
            same.setdefault((run.data.tags["trial.key"], run.data.tags["trial.attempt"]), []).append(run)
        return [keep_canonical(self.client, runs) for runs in same.values()]

    def _trial_tags(self, trial: Trial, attempt: int) -> dict[str, str]:
        return {
            "mlflow.parentRunId": self.parent,
            **pages.source_tags(self.plan),
            **_variant_tags(trial),
            "sweep.id": trial.sweep_id,
            "sweep.role": "trial",
            "trial.key": trial.key,
            "trial.name": trial.name,  # as terminals and reports have it
            "trial.cell": trial.cell,
            "trial.attempt": str(attempt),
            "trial.repeat": str(trial.repeat),
            "trial.workload": trial.workload,
            "emulated": str(trial.emulated).lower(),
            **prefixed_tags("trial.key", trial.key_parts),
            **trial.labels,
        }

    def _describe_experiment(self) -> None:
        before = self.client.get_experiment(self.experiment_id).tags
        for name, value in pages.experiment_tags(self.plan, self.experiment_id, self.parent, before).items():
            self.client.set_experiment_tag(self.experiment_id, name, value)

    def _create(self, name: str, started_at: float, tags: Mapping[str, str]) -> str:
        run = self.client.create_run(self.experiment_id, start_time=milliseconds(started_at), run_name=name, tags=dict(tags))
        return str(run.info.run_id)

    def _search(self, query: str) -> list[Run]:
        return search(self.client, self.experiment_id, query)


def digest_of(published: Iterable[tuple[str, int, str]]) -> str:
    """What ALL_PUBLISHED says of runs: (trial key, attempt, value of PUBLISHED) each."""
    return digest(sorted(published))


def search(client: MlflowClient, experiment_id: str, query: str, order_by: list[str] | None = None) -> list[Run]:
    """All runs of an experiment that match `query`, from all pages of the answer; `order_by` as MLflow has it."""
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], query, max_results=1000, order_by=order_by, page_token=token)
        runs.extend(page)
        token = page.token
        if not token:
            return runs


def _variant_tags(trial: Trial) -> dict[str, str]:
    """What it runs in besides its pool, where that is not the usual."""
    environment = {"trial.environment": trial.environment, "trial.environment_digest": trial.environment_digest}
    commit = {"trial.commit": trial.commit, "mlflow.source.git.commit": trial.commit}
    return {name: value for name, value in {**environment, **commit}.items() if value}


def find_experiment(client: MlflowClient, name: str) -> str:
    """Id of the experiment of this name, created if there is none. Two flows may create it at once."""
    existing = client.get_experiment_by_name(name)
    if existing is None:
        location = (runs_root() / "mlartifacts" / name).as_uri() if is_local(tracking_uri()) else None
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except Exception:
            existing = client.get_experiment_by_name(name)  # another process was first
            if existing is None:
                raise
    return str(existing.experiment_id)


def rank(run: Run) -> tuple[bool, bool, int, str]:
    """Sort key for duplicate runs: complete ones first, then ended ones, then by start time."""
    return (PUBLISHED not in run.data.tags, run.info.status == "RUNNING", run.info.start_time, run.info.run_id)


def keep_canonical(client: MlflowClient, runs: Sequence[Run]) -> Run:
    """Keep the first of duplicate runs, by `rank`, and delete the others."""
    first, *others = sorted(runs, key=rank)
    for other in others:
        client.set_tag(other.info.run_id, "reason", f"duplicate of {first.info.run_id}")
        client.set_terminated(other.info.run_id, "KILLED")
        client.delete_run(other.info.run_id)
    return first
