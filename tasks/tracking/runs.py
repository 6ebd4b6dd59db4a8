"""MLflow as a projection of the journals: experiment = suite, parent run = sweep, nested run = one attempt of a trial.

Everything here can be done again at any time and gives the same runs: a run is found by its tags before one is created, timestamps come
from the journal, and MLflow drops a metric row that it has already. So a lost server, a lost reply or a killed flow costs a replay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from logging import Logger, LoggerAdapter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.journal.journal import Journal, Record
from cluster.trial_layout import LOG, REPORT, STEPS, TRACE
from experiments.config.paths import runs_root
from experiments.step_record import metrics_of
from experiments.summary import summarise
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.store import Plan
from tasks.tracking import pages

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.tracking import MlflowClient
from tasks.tracking.client import _is_local, tracking_uri

T = TypeVar("T")
Log = Logger | LoggerAdapter[Logger]
_BATCH = 1000  # metrics in one call: MLflow's own limit
_PARAMS = 100
_TEXT = 5000  # longest tag value
_PUBLISHED = "trial.published"


class SweepRuns:
    """The runs of one sweep in MLflow."""

    def __init__(self, client: MlflowClient, plan: Plan) -> None:
        self.client, self.plan = client, plan
        self.experiment_id = self._experiment(plan.name)
        self.parent = self._parent()
        self._describe()

    # --- finding and creating

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            location = (runs_root() / "mlartifacts" / name).as_uri() if _is_local(tracking_uri()) else None
            try:
                return str(self.client.create_experiment(name, artifact_location=location))
            except Exception:
                found = self.client.get_experiment_by_name(name)  # somebody else was first
                if found is None:
                    raise
        return str(found.experiment_id)

    def _describe(self) -> None:
        before = self.client.get_experiment(self.experiment_id).tags
        for name, value in pages.experiment_tags(self.plan, self.experiment_id, self.parent, before).items():
            self.client.set_experiment_tag(self.experiment_id, name, value)

    def _parent(self) -> str:
        plan = self.plan
        existing = self._search(f"tags.`sweep.id` = '{plan.sweep_id}' and tags.`sweep.role` = 'parent'")
        if existing:
            return str(self._canonical(existing).info.run_id)
        tags = {
            "sweep.id": plan.sweep_id,
            "sweep.role": "parent",
            "sweep.profile": plan.profile,
            "sweep.command": plan.command,
            pages.NOTE: pages.sweep_note(plan, self.experiment_id),
            **pages.source_tags(plan),
            **_tags("git", plan.git),
            **plan.labels,
        }
        return self._create(plan.sweep_id, plan.created_at, tags)

    def trial_run(self, trial: Trial, attempt: int, started_at: float) -> str:
        """Id of the run of one attempt, created if there is none. More than one, after a lost reply, become one."""
        existing = self._search(f"tags.`trial.key` = '{trial.key}' and tags.`trial.attempt` = '{attempt}'")
        if existing:
            return str(self._canonical(existing).info.run_id)
        tags = {
            "mlflow.parentRunId": self.parent,
            **pages.source_tags(self.plan),
            "sweep.id": trial.sweep_id,
            "sweep.role": "trial",
            "trial.key": trial.key,
            "trial.cell": trial.cell,
            "trial.attempt": str(attempt),
            "trial.repeat": str(trial.repeat),
            "trial.workload": trial.workload,
            "emulated": str(trial.emulated).lower(),
            **_tags("trial.key", trial.key_parts),
            **trial.labels,
        }
        run_id = self._create(trial.name if attempt == 1 else f"{trial.name} · attempt {attempt}", started_at, tags)
        from mlflow.entities import Param

        values = {**{k: v for k, v in trial.parameters.items() if k not in trial.axes}, **trial.axes, "repeat": trial.repeat}
        params = [Param(name, _text(value)) for name, value in values.items()]
        for chunk in _chunks(params, _PARAMS):
            self.client.log_batch(run_id, params=chunk)
        return run_id

    def _create(self, name: str, started_at: float, tags: Mapping[str, str]) -> str:
        run = self.client.create_run(self.experiment_id, start_time=_ms(started_at), run_name=name, tags=dict(tags))
        return str(run.info.run_id)

    def _search(self, query: str) -> list[Run]:
        runs: list[Run] = []
        token = None
        while True:
            page = self.client.search_runs([self.experiment_id], query, max_results=1000, page_token=token)
            runs.extend(page)
            token = page.token
            if not token:
                return runs

    def _canonical(self, runs: Sequence[Run]) -> Run:
        """One of several runs for the same thing: a published one, else the first; the others are deleted."""
        ranked = sorted(runs, key=lambda r: (_PUBLISHED not in r.data.tags, r.info.status == "RUNNING", r.info.start_time, r.info.run_id))
        for other in ranked[1:]:
            self.client.set_tag(other.info.run_id, "reason", f"duplicate of {ranked[0].info.run_id}")
            self.client.set_terminated(other.info.run_id, "KILLED")
            self.client.delete_run(other.info.run_id)
        return ranked[0]

    # --- filling

    def log_records(self, run_id: str, records: Iterable[Record]) -> None:
        """Per-step metrics with the journal's own timestamps."""
        for chunk in _chunks(list(step_metrics(records)), _BATCH):
            self.client.log_batch(run_id, metrics=chunk)

    def finish_trial(
        self, trial: Trial, journal: Journal, result: TrialResult, trial_dir: Path, sent: Collection[int] = frozenset()
    ) -> str:
        """Bring one run to its end: every step once, summary, environment, steps.parquet, outcome. Returns the run's id.

        `sent`: steps that MLflow is known to have taken. Sending them again would change nothing, but takes as long as the first time.
        """
        run_id = self.trial_run(trial, result.attempt, result.started_at)
        stamp = f"{journal.checksum}-{result.outcome}"
        run = self.client.get_run(run_id)
        if run.data.tags.get(_PUBLISHED) == stamp and run.info.status != "RUNNING":
            return run_id
        from mlflow.entities import Metric, RunTag

        mine = journal if journal.attempt == result.attempt else Journal()
        self.log_records(run_id, [record for record in mine.steps if record["step"] not in sent])
        at = _ms(result.finished_at)
        summary = summarise(mine.steps, mine.window, mine.evaluations) if mine.window and result.outcome is Outcome.OK else result.summary
        metrics = [
            Metric(name, float(value), at, 0) for name, value in summary.items() if value is not None and math.isfinite(float(value))
        ]
        tags = {
            "trial.outcome": str(result.outcome),
            **({"reason": result.reason or str(result.outcome)} if result.outcome is not Outcome.OK else {}),
            "emulated": str(trial.emulated or result.emulated).lower(),  # known for sure only once the device has said so
            **_tags("env", mine.environment or result.environment),
        }
        for chunk in _chunks(metrics, _BATCH):
            self.client.log_batch(run_id, metrics=chunk)
        for tag_chunk in _chunks([RunTag(name, value) for name, value in tags.items()], _PARAMS):
            self.client.log_batch(run_id, tags=tag_chunk)
        for name in (STEPS, LOG):
            if (trial_dir / name).exists():
                self.client.log_artifact(run_id, str(trial_dir / name))
        if (trial_dir / TRACE).exists():
            self.client.log_artifact(run_id, str(trial_dir / TRACE), "profile")
        self.client.set_tag(run_id, _PUBLISHED, stamp)  # last: a run with this tag is whole
        self.client.set_terminated(run_id, _status(result.outcome), end_time=at)
        return run_id

    def finish_sweep(
        self, states: Mapping[str, Outcome | None], artifacts: Iterable[Path], reason: str | None, metrics: Mapping[str, float]
    ) -> None:
        """Close the parent run with the reports, and leave no run of this sweep open."""
        self.parent = self._parent()  # a lost reply may have left two
        self.settle({trial.key for trial in self.plan.trials}, reason or "its flow ended before it did")
        for path in artifacts:
            if path.is_dir():
                self.client.log_artifacts(self.parent, str(path), path.name)
            elif path.name == REPORT:
                text = pages.linked_figures(path.read_text(), self.experiment_id, self.parent)
                self.client.log_text(self.parent, text, path.name)
            elif path.exists():
                self.client.log_artifact(self.parent, str(path))
        for name, value in metrics.items():
            self.client.log_metric(self.parent, name, value, timestamp=_ms(self.plan.created_at))
        complete = all(outcome is not None and outcome is not Outcome.CANCELLED for outcome in states.values())
        if reason:
            self.client.set_tag(self.parent, "reason", reason)
        elif complete and "reason" in self.client.get_run(self.parent).data.tags:
            self.client.delete_tag(self.parent, "reason")
        ok = all(outcome is not None and outcome.expected for outcome in states.values())
        self.client.set_terminated(self.parent, "FINISHED" if ok else ("FAILED" if complete else "KILLED"))

    def settle(self, keys: set[str], reason: str) -> None:
        """End every run that nobody works on: older attempts, trials under another key, what a dead flow left RUNNING."""
        attempts: dict[tuple[str, str], list[Run]] = {}
        for run in self._search(f"tags.`sweep.id` = '{self.plan.sweep_id}' and tags.`sweep.role` = 'trial'"):
            attempts.setdefault((run.data.tags["trial.key"], run.data.tags["trial.attempt"]), []).append(run)
        runs = [self._canonical(same) for same in attempts.values()]
        latest: dict[str, int] = {}
        for run in runs:
            key, attempt = run.data.tags["trial.key"], int(run.data.tags["trial.attempt"])
            latest[key] = max(latest.get(key, 0), attempt)
        superseded = {entry.key: entry for entry in self.plan.superseded}
        for run in runs:
            key, attempt = run.data.tags["trial.key"], int(run.data.tags["trial.attempt"])
            if key in superseded and key not in keys:
                self.client.set_tag(run.info.run_id, "reason", f"superseded by {superseded[key].by}: {superseded[key].why}")
                if run.info.status == "RUNNING":
                    self.client.set_terminated(run.info.run_id, "KILLED")
                self.client.delete_run(run.info.run_id)
            elif run.info.status == "RUNNING":
                older = attempt < latest[key]
                self.client.set_tag(run.info.run_id, "reason", f"attempt {attempt} was followed by {latest[key]}" if older else reason)
                self.client.set_terminated(run.info.run_id, "FAILED" if older else "KILLED")


def step_metrics(records: Iterable[Record]) -> Iterable[Metric]:
    """The metrics of step records (experiments.step_record) against step; what is not finite cannot be drawn."""
    from mlflow.entities import Metric

    for record in records:
        if record.get("kind") != "step":
            continue
        at, step = _ms(record["t"]), int(record["step"])
        for name, value in metrics_of(record).items():
            if value is not None and math.isfinite(value):
                yield Metric(name, float(value), at, step)


def _status(outcome: Outcome) -> str:
    if outcome is Outcome.OK:
        return "FINISHED"
    return "KILLED" if outcome is Outcome.CANCELLED else "FAILED"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _tags(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {f"{prefix}.{name}": _text(value)[:_TEXT] for name, value in values.items() if value is not None}


def _chunks(items: Sequence[T], size: int) -> Iterable[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
