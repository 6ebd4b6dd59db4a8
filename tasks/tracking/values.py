"""Convert values for MLflow, and split calls to stay within its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.config.scalar_text import yaml_text

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

T = TypeVar("T")

_METRICS = 1000  # metrics in one call: MLflow's own limit
_PARAMS = 100  # parameters or tags in one call
_TEXT = 5000  # characters of the longest tag value


def milliseconds(seconds: float) -> int:
    """A Unix time in s as MLflow's whole milliseconds."""
    return round(seconds * 1000)


def prefixed_tags(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    """{"<prefix>.<name>": text} of the values that are not None."""
    return {f"{prefix}.{name}": yaml_text(value)[:_TEXT] for name, value in values.items() if value is not None}


def log_metrics(client: MlflowClient, run_id: str, metrics: Sequence[Metric]) -> None:
    """Log metrics in calls of at most 1000."""
    for chunk in _chunks(metrics, _METRICS):
        client.log_batch(run_id, metrics=chunk)


def set_metrics(client: MlflowClient, run_id: str, values: Mapping[str, float], counts: str) -> None:
    """Make these the run's latest values; a count that it had, whose name begins with `counts`, and that is not among them, becomes 0.

    Of a metric's values MLflow shows that of the last step, of several of one step and time the largest: so each change is a step.
    """
    known = client.get_run(run_id).data.metrics
    gone = {name: 0.0 for name in known if name.startswith(counts) and name not in values}
    for name, value in {**gone, **values}.items():
        if known.get(name) == value:
            continue
        steps = [one.step for one in client.get_metric_history(run_id, name)] if name in known else []
        client.log_metric(run_id, name, value, step=max(steps, default=-1) + 1)


def log_params(client: MlflowClient, run_id: str, values: Mapping[str, Any]) -> None:
    """Log parameters in calls of at most 100."""
    from mlflow.entities import Param

    for chunk in _chunks([Param(name, yaml_text(value)) for name, value in values.items()], _PARAMS):
        client.log_batch(run_id, params=chunk)


def log_tags(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    """Log tags in calls of at most 100."""
    from mlflow.entities import RunTag

    for chunk in _chunks([RunTag(name, value) for name, value in tags.items()], _PARAMS):
        client.log_batch(run_id, tags=chunk)


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
