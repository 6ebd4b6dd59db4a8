"""What a person reads on MLflow's pages besides the figures: descriptions, and links that compare a sweep's trials.

Links within MLflow are relative (`#/experiments/...`), so that they hold for whatever address the UI is served at.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from tasks.store import Plan

# What of a trial stands beside its axes in the table of trials
_METRICS = ("throughput", "step_time_median_s", "data_wait_share", "final_loss", "eval_loss_after")
_FIGURE = re.compile(r"(!\[[^\]]*\]\()(figures/[^)]+)\)")


def experiment_tags(plan: Plan) -> dict[str, str]:
    """Description of the suite's experiment; its kind makes MLflow show the pages of model training instead of those of chat programs."""
    text = f"{plan.suite.get('description') or plan.suite.get('suite')}\n\nA run is a sweep, the runs nested in it are its trials. "
    text += "A sweep's page has links to compare its trials; its artifacts hold the report and the figures."
    return {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": text}


def source_tags(plan: Plan) -> dict[str, str]:
    """Who started what, where MLflow looks for it."""
    commit = plan.git.get("commit")
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user id without a name
        user = "unknown"
    tags = {"mlflow.user": user, "mlflow.source.type": "LOCAL", "mlflow.source.name": plan.command}
    return {**tags, "mlflow.source.git.commit": str(commit)} if commit else tags


def sweep_note(plan: Plan, experiment_id: str) -> str:
    """Description of a sweep's run, in Markdown."""
    table, charts = table_link(experiment_id, plan.sweep_id), charts_link(experiment_id, plan.sweep_id)
    return f"**Compare the trials: [table]({table}) · [charts]({charts})**\n\n`{plan.command}`"


def table_link(experiment_id: str, sweep_id: str) -> str:
    """The sweep's trials as a table with their axes and main metrics: the view kept in the experiment's tag `view_tag`."""
    return f"#/experiments/{experiment_id}/runs?viewStateShareKey={quote(sweep_id)}"


def charts_link(experiment_id: str, sweep_id: str) -> str:
    """The sweep's trials as charts of every metric, one line or bar a trial."""
    facets = {"searchFilter": trials_of(sweep_id), "orderByKey": "attributes.start_time", "orderByAsc": "true", "compareRunsMode": "CHART"}
    return f"#/experiments/{experiment_id}/runs?{urlencode(facets, quote_via=quote)}"


def view_tag(plan: Plan) -> tuple[str, str]:
    """Name and value of the experiment's tag that holds the view of `table_link`, as MLflow's own Share button would write it."""
    axes = list(plan.trials[0].axes) if plan.trials else []
    columns = [*(f"params.`{axis}`" for axis in axes), *(f"metrics.`{name}`" for name in _METRICS), "tags.`trial.outcome`"]
    state: dict[str, Any] = {
        "searchFilter": trials_of(plan.sweep_id),
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "selectedColumns": columns,
        "runsHiddenMode": "SHOW_ALL",
    }
    return f"mlflow.sharedViewState.{plan.sweep_id}", json.dumps(state)


def trials_of(sweep_id: str) -> str:
    """MLflow's filter for the sweep's trials."""
    return f"tags.`sweep.id` = '{sweep_id}' and tags.`sweep.role` = 'trial'"


def with_figures(markdown: str, run_id: str, base: str = "") -> str:
    """A report whose figures are taken from the run's artifacts, by the MLflow server at `base` or the one that shows the page."""

    def replace(match: re.Match[str]) -> str:
        query: Mapping[str, str] = {"path": match[2], "run_uuid": run_id}
        return f"{match[1]}{base}get-artifact?{urlencode(query)})"

    return _FIGURE.sub(replace, markdown)


def without_figures(markdown: str) -> str:
    """A report for a page that cannot show its figures."""
    return _FIGURE.sub("", markdown).replace("## Figures\n\n", "")
