"""Texts of MLflow's pages: descriptions, and links that compare a sweep's trials.

Links within MLflow are relative (`#/experiments/...`), so that they work at any address of the UI.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from tasks.sweep.store import Plan, is_sweep_id, started_order
from tasks.tracking import views

NOTE = "mlflow.note.content"  # the tag that holds a description
HEADLINE = "sweep.headline"  # the tag that holds what the sweep found, as its description has it
_ABOUT = "A run is a sweep, the runs nested in it are its trials. The artifacts of a sweep's run hold its report and its figures."
_FIGURE = re.compile(r"(!\[[^\]]*\]\()(figures/[^)]+)\)")
_LATEST = "Latest sweep: "
_TRAINING = "workflowType=machine_learning"  # otherwise MLflow opens its pages for chat programs


def experiment_tags(plan: Plan, experiment_id: str, parent: str, before: Mapping[str, str]) -> dict[str, str]:
    """Tags to set on the suite's experiment: its kind, the view of `table_link`, and a description unless a user wrote one.

    `before`: the experiment's current tags; only tags with a new value are returned.
    """
    tags = {"mlflow.experimentKind": "custom_model_development", views.name(plan.sweep_id): views.view(plan, trials_of(plan.sweep_id))}
    if before.get(NOTE, _LATEST).startswith(_LATEST) and not _names_later(before.get(NOTE, ""), plan.sweep_id):
        run = f"[{plan.sweep_id}]({run_link(experiment_id, parent)})"
        tags[NOTE] = f"{_LATEST}{run}. {_compare(experiment_id, plan.sweep_id)}\n\n{plan.suite.description}\n\n{_ABOUT}"
    return {name: value for name, value in tags.items() if before.get(name) != value}


def _names_later(note: str, sweep_id: str) -> bool:
    """Whether the sweep that an experiment's description names began after this one, which then is not the latest: it is gone on with."""
    named = re.match(rf"{_LATEST}\[([^\]]+)\]", note)
    return named is not None and is_sweep_id(named[1]) and started_order(named[1]) > started_order(sweep_id)


def source_tags(plan: Plan) -> dict[str, str]:
    """MLflow's own tags for the user, the command and the commit."""
    commit = plan.git.get("commit")
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user id without a name
        user = "unknown"
    tags = {"mlflow.user": user, "mlflow.source.type": "LOCAL", "mlflow.source.name": plan.command}
    return {**tags, "mlflow.source.git.commit": str(commit)} if commit else tags


def sweep_note(plan: Plan, experiment_id: str, headline: str = "") -> str:
    """The description of a sweep's run, in Markdown. `headline`: what it found, once that is known."""
    return "\n\n".join([*([headline.strip()] if headline else []), _compare(experiment_id, plan.sweep_id), f"`{plan.command}`"])


def _compare(experiment_id: str, sweep_id: str) -> str:
    return f"Compare its trials: [table]({table_link(experiment_id, sweep_id)}) · [charts]({charts_link(experiment_id, sweep_id)})"


def run_link(experiment_id: str, run_id: str) -> str:
    """Address of a run's page."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?{_TRAINING}"


def table_link(experiment_id: str, sweep_id: str) -> str:
    """Address of a table of the sweep's trials with their axes and main metrics. A tag of the experiment holds this view."""
    return f"#/experiments/{experiment_id}/runs?{_TRAINING}&viewStateShareKey={quote(sweep_id)}"


def charts_link(experiment_id: str, sweep_id: str) -> str:
    """Address of charts with a line or bar for each of the sweep's trials: loss, throughput and step time first, the rest folded."""
    return f"{table_link(experiment_id, sweep_id)}&compareRunsMode=CHART"


def parent_of(sweep_id: str) -> str:
    """MLflow's filter for a sweep's own run."""
    return f"tags.`sweep.id` = '{sweep_id}' and tags.`sweep.role` = 'parent'"


def trials_of(sweep_id: str) -> str:
    """MLflow's filter for the sweep's trials."""
    return f"tags.`sweep.id` = '{sweep_id}' and tags.`sweep.role` = 'trial'"


def with_figures(markdown: str, run_id: str, base: str) -> str:
    """A report whose figures are the run's artifacts on the MLflow server at `base`: PNG, on white for pages of any colour."""

    def replace(match: re.Match[str]) -> str:
        path = match[2].removesuffix(".svg") + ".png"
        return f"{match[1]}{base}get-artifact?{urlencode({'path': path, 'run_uuid': run_id})})"

    return _FIGURE.sub(replace, markdown)


def linked_figures(markdown: str, experiment_id: str, run_id: str) -> str:
    """A report for MLflow's pages, which show no images in Markdown: links to the pages of the figures instead."""

    def replace(match: re.Match[str]) -> str:
        return f"- {match[1][1:]}#/experiments/{experiment_id}/runs/{run_id}/artifacts/{match[2]})"

    return _FIGURE.sub(replace, markdown)


def without_figures(markdown: str) -> str:
    """A report for a page that cannot show its figures."""
    return _FIGURE.sub("", markdown).replace("## Figures\n\n", "")
