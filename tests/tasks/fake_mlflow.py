"""MLflow's client without MLflow: what the projection sends, kept in dictionaries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.tracking import projection

_QUERY = re.compile(r"tags\.`([^`]+)` = '([^']*)'")


class Page(list[Any]):
    """A page of found runs."""

    token: str | None = None


class Client:
    """Runs in the order in which they were created. `page`: most runs that one search gives."""

    def __init__(self, page: int = 1000) -> None:
        self.experiments: dict[str, SimpleNamespace] = {}
        self.runs: dict[str, SimpleNamespace] = {}
        self.deleted: list[str] = []
        self.metrics: dict[str, list[tuple[str, float, int, int]]] = {}  # run -> (name, value, ms, step)
        self.params: dict[str, dict[str, str]] = {}
        self.artifacts: dict[str, list[str]] = {}
        self.batches: list[int] = []  # metrics of each call
        self.page = page

    # --- experiments

    def get_experiment_by_name(self, name: str) -> Any:
        return self.experiments.get(name)

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        self.experiments[name] = SimpleNamespace(experiment_id=str(len(self.experiments)), tags={}, location=artifact_location)
        return str(self.experiments[name].experiment_id)

    def get_experiment(self, experiment_id: str) -> Any:
        return next(one for one in self.experiments.values() if one.experiment_id == experiment_id)

    def set_experiment_tag(self, experiment_id: str, name: str, value: str) -> None:
        self.get_experiment(experiment_id).tags[name] = value

    # --- runs

    def create_run(self, experiment_id: str, start_time: int, run_name: str, tags: dict[str, str]) -> Any:
        run_id = f"run{len(self.runs)}"
        info = SimpleNamespace(run_id=run_id, status="RUNNING", start_time=start_time, run_name=run_name, end_time=None)
        self.runs[run_id] = SimpleNamespace(info=info, data=SimpleNamespace(tags=dict(tags), metrics={}), experiment_id=experiment_id)
        return self.runs[run_id]

    def get_run(self, run_id: str) -> Any:
        return self.runs[run_id]

    def search_runs(
        self, experiments: Sequence[str], query: str, max_results: int, order_by: None = None, page_token: str | None = None
    ) -> Page:
        wanted = _QUERY.findall(query)
        found = [
            run
            for run_id, run in self.runs.items()
            if run_id not in self.deleted
            and run.experiment_id in experiments
            and all(run.data.tags.get(name) == value for name, value in wanted)
        ]
        begin = int(page_token or 0)
        page = Page(found[begin : begin + self.page])
        page.token = str(begin + self.page) if begin + self.page < len(found) else None
        return page

    def delete_run(self, run_id: str) -> None:
        self.deleted.append(run_id)

    def set_terminated(self, run_id: str, status: str, end_time: int | None = None) -> None:
        self.runs[run_id].info.status, self.runs[run_id].info.end_time = status, end_time

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        self.runs[run_id].data.tags[name] = value

    def delete_tag(self, run_id: str, name: str) -> None:
        del self.runs[run_id].data.tags[name]

    def log_batch(self, run_id: str, metrics: Sequence[Any] = (), params: Sequence[Any] = (), tags: Sequence[Any] = ()) -> None:
        if metrics:
            self.batches.append(len(metrics))
        self.metrics.setdefault(run_id, [])
        for one in metrics:
            self._log(run_id, one.key, one.value, one.timestamp, one.step)
        self.params.setdefault(run_id, {}).update({one.key: one.value for one in params})
        self.runs[run_id].data.tags.update({one.key: one.value for one in tags})

    def log_metric(self, run_id: str, name: str, value: float, timestamp: int = 0, step: int = 0) -> None:
        self._log(run_id, name, value, timestamp, step)

    def _log(self, run_id: str, name: str, value: float, timestamp: int, step: int) -> None:
        self.metrics.setdefault(run_id, []).append((name, value, timestamp, step))
        self.runs[run_id].data.metrics.update(self.last(run_id))

    def get_metric_history(self, run_id: str, name: str) -> list[Any]:
        found = [one for one in self.metrics.get(run_id, []) if one[0] == name]
        return [SimpleNamespace(key=key, value=value, timestamp=timestamp, step=step) for key, value, timestamp, step in found]

    # --- artifacts

    def log_artifact(self, run_id: str, path: str, folder: str | None = None) -> None:
        self.artifacts.setdefault(run_id, []).append(f"{folder}/{Path(path).name}" if folder else Path(path).name)

    def log_artifacts(self, run_id: str, path: str, folder: str) -> None:
        self.artifacts.setdefault(run_id, []).append(f"{folder}/")

    def log_text(self, run_id: str, text: str, name: str) -> None:
        self.artifacts.setdefault(run_id, []).append(name)

    # --- for tests

    def last(self, run_id: str) -> dict[str, float]:
        """Each metric's value as MLflow shows it: of the last step, of several the latest, of several of one time the largest."""
        ordered = sorted(self.metrics.get(run_id, []), key=lambda one: (one[3], one[2], one[1]))
        return {name: value for name, value, *_ in ordered}

    def with_role(self, role: str) -> list[Any]:
        """The runs of a role that are not deleted."""
        return [run for run_id, run in self.runs.items() if run_id not in self.deleted and run.data.tags["sweep.role"] == role]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """What the projection connects to."""
    made = Client()
    monkeypatch.setattr(projection, "connect", lambda: made)
    return made
