"""What MLflow's pages of a sweep show first: the saved view behind its links to table and charts.

The view is a tag of the experiment, in the format that MLflow 3.17 saves for its Share button. A page that is opened without such a link
shows all metrics by name: MLflow has no default view of an experiment, and metrics get sections of their own only by slashes in their
names, which would part them from those of earlier sweeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from experiments.metrics import metric_of
from tasks.sweep.store import Plan

DISCARDED = "trial.discarded"  # tag of the run of an attempt that a later one took the place of; no other has it
_FIRST, _REST = "first", "rest"  # sections of charts
_LINES = {"loss": False, "step_time_s": True}  # metrics by step, and whether outliers are left out of the axis
_COLUMNS = ("final_loss", "throughput", "step_time_median_s")  # of the table beside a trial's axes; MLflow sorts them by name
_CHARTS = ("loss", "throughput", "step_time_s", "peak_memory_bytes", "eval_loss_after", "data_wait_share")


def name(sweep_id: str) -> str:
    """The experiment's tag that holds the sweep's view."""
    return f"mlflow.sharedViewState.{sweep_id}"


def view(plan: Plan, query: str) -> str:
    """The tag's value, under MLflow's limit of 5,000 characters. Both parts start with loss, throughput and step time.

    `query`: MLflow's filter for the sweep's trials.
    """
    axes = list(plan.trials[0].axes) if plan.trials else []
    main = metric_of(plan.suite.report.metric)
    columns = dict.fromkeys((*_COLUMNS, main.name))
    mixed = len({trial.emulated for trial in plan.trials}) > 1
    state: dict[str, Any] = {
        # an attempt that another followed is no trial; results of emulated devices are not compared with measurements
        "searchFilter": f"{query} and tags.`{DISCARDED}` IS NULL" + (" and tags.`emulated` = 'false'" if mixed else ""),
        "orderByKey": f"metrics.`{main.name}`",  # the best first; sorted by time, the trials would be folded into the sweep's row
        "orderByAsc": main.lower_is_better,
        "selectedColumns": [
            *(f"params.`{axis}`" for axis in axes),
            *(f"metrics.`{column}`" for column in columns),
            "tags.`trial.outcome`",
        ],
        "runsHiddenMode": "SHOW_ALL",  # in charts, which show ten by default
        "hideEmptyCharts": True,
        "isAccordionReordered": True,  # keeps the sections in this order
        "compareRunSections": [
            {"uuid": _FIRST, "name": "Loss, throughput, step time", "display": True, "isReordered": True},
            # MLflow's own section: it puts every metric into it that has no chart yet
            {"uuid": _REST, "name": "Model metrics", "display": False, "isReordered": False},
        ],
        "compareRunCharts": list(_charts(main.name)),
    }
    return json.dumps(state, separators=(",", ":"))


def _titled(name: str) -> str:
    """A chart's title: the metric's name, and its unit where the name has none. A step's own fields are not in the registry."""
    if name in _LINES:
        return name
    metric = metric_of(name)
    return f"{name} ({metric.unit})" if metric.unit and not metric.short else name


def _charts(main: str) -> Iterator[dict[str, Any]]:
    """MLflow's settings of each chart of the first section, in order."""
    for metric in dict.fromkeys((*_CHARTS[:3], main, *_CHARTS[3:])):
        chart: dict[str, Any] = {"uuid": metric, "metricSectionId": _FIRST, "metricKey": metric, "displayName": _titled(metric)}
        chart |= {"type": "BAR", "deleted": False, "isGenerated": True, "runsCountToCompare": 10}
        if metric in _LINES:
            chart |= {"type": "LINE", "lineSmoothness": 0, "scaleType": "linear", "xAxisScaleType": "linear", "range": {}}
            chart |= {"xAxisKey": "step", "selectedXAxisMetricKey": "", "yAxisKey": "metric", "yAxisExpressions": []}
            chart |= {"ignoreOutliers": _LINES[metric], "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True}
        yield chart
