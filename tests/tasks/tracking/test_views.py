"""The saved view behind MLflow's links: what its table and its charts start with. How MLflow 3.17 reads it was seen in a browser."""

from __future__ import annotations

import json
from typing import Any

from experiments.spec.schema import ReportSettings
from tasks.tracking import views
from tests.tasks.plan_support import make_plan, make_suite, make_trial


def view_of(metric: str = "throughput", axes: int = 2) -> dict[str, Any]:
    report = ReportSettings(rows=["pool"], columns="pool", metric=metric)
    trial = make_trial(axes={f"axis_{number}": number for number in range(axes)})
    plan = make_plan([trial]).model_copy(update={"suite": make_suite(report=report)})
    text = views.view(plan, "tags.`x` = 'y'")
    assert len(text) < 5000, "MLflow takes no longer tag of an experiment"
    found: dict[str, Any] = json.loads(text)
    return found


def test_charts_start_with_loss_throughput_and_step_time_and_the_rest_is_folded() -> None:
    view = view_of(axes=20)
    charts = view["compareRunCharts"]
    assert [(chart["metricKey"], chart["type"]) for chart in charts[:3]] == [
        ("loss", "LINE"),
        ("throughput", "BAR"),
        ("step_time_s", "LINE"),
    ]
    assert len({chart["uuid"] for chart in charts}) == len(charts)
    first, rest = view["compareRunSections"]
    assert {chart["metricSectionId"] for chart in charts} == {first["uuid"]}
    assert (first["display"], rest["display"], rest["name"]) == (True, False, "Model metrics")  # the name by which MLflow finds it


def test_the_metric_of_the_report_is_among_them() -> None:
    view = view_of("latency_p99_s")
    assert [chart["metricKey"] for chart in view["compareRunCharts"]][3] == "latency_p99_s"
    assert view["selectedColumns"] == [
        *("params.`axis_0`", "params.`axis_1`", "metrics.`final_loss`", "metrics.`throughput`", "metrics.`step_time_median_s`"),
        *("metrics.`latency_p99_s`", "tags.`trial.outcome`"),
    ]
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`latency_p99_s`", True)
    assert len(view_of()["selectedColumns"]) == 6, "throughput once"


def test_attempts_that_others_took_the_place_of_are_left_out() -> None:
    assert view_of()["searchFilter"] == "tags.`x` = 'y' and tags.`trial.discarded` IS NULL"


def test_a_charts_title_has_the_unit_that_its_metrics_name_lacks() -> None:
    titles = {chart["metricKey"]: chart["displayName"] for chart in view_of("latency_p99_s")["compareRunCharts"]}
    assert titles["throughput"] == "throughput (samples/s)"
    names = ("loss", "step_time_s", "peak_memory_bytes", "latency_p99_s", "data_wait_share")
    assert [titles[name] for name in names] == [*names]
