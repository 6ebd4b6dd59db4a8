"""What others measured in MLflow: an experiment for each program, apart from those of suites; a run for each import, nested ones in it."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.trial_layout import IMPORTED, ORIGINALS
from tasks.imports.model import Imported, OthersResult
from tasks.imports.text import NOT_OURS, headline
from tasks.tracking import pages
from tasks.tracking.client import connect, tracking_uri, ui_url
from tasks.tracking.runs import find_experiment
from tasks.tracking.values import log_metrics, log_params, milliseconds

_LONGEST = 6000  # characters of a parameter: MLflow's own limit
_NOT_A_NAME = re.compile(r"[^\w\-. :/]")  # what MLflow refuses in names


def publish_imported(imported: Imported, folder: Path) -> str:
    """Write the runs; returns where they are, for a person. No query of a sweep or a night finds them. Raises what MLflow raises."""
    client = connect()
    experiment = find_experiment(client, f"imported-{imported.origin}")
    at = milliseconds(imported.measured_at if imported.measured_at is not None else imported.imported_at)
    tags = {"measured_by": imported.measured_by, "origin": str(imported.origin), "import.id": imported.sweep_id}
    note = {pages.NOTE: f"{headline(imported)}. {NOT_OURS}"}
    parent = client.create_run(experiment, start_time=at, run_name=imported.sweep_id, tags={**tags, **note}).info.run_id
    log_params(client, parent, {_name(name): value[:_LONGEST] for name, value in imported.environment.items()})
    client.log_artifact(parent, str(folder / IMPORTED))
    client.log_artifacts(parent, str(folder / ORIGINALS), ORIGINALS)
    for result in imported.results:
        nested = {**tags, "mlflow.parentRunId": parent, **({"outcome": result.outcome} if result.outcome else {})}
        run = client.create_run(experiment, start_time=at, run_name=result.name, tags=nested).info.run_id
        log_params(
            client, run, {_name(name): value[:_LONGEST] if isinstance(value, str) else value for name, value in result.settings.items()}
        )
        log_metrics(client, run, _metrics(result, at))
        client.set_terminated(run, "FINISHED", end_time=at)
    client.set_terminated(parent, "FINISHED", end_time=at)
    if tracking_uri().startswith("http"):
        return f"{ui_url()}/{pages.run_link(experiment, parent)}"
    return f"experiment imported-{imported.origin}, run {imported.sweep_id}; `sweep ui` serves it"


def _metrics(result: OthersResult, at: int) -> list[object]:
    """Each figure, and the single readings behind it as `<name>.each`."""
    from mlflow.entities import Metric

    units = {value.name: f".{value.unit}" if value.unit else "" for value in result.values}
    own = [Metric(_name(f"{value.name}{units[value.name]}"), value.value, at, 0) for value in result.values]
    each = [
        Metric(_name(f"{name}.each"), reading, at, step)
        for name, readings in result.samples.items()
        for step, reading in enumerate(readings)
    ]
    return own + each


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("_", text)[:250]
