"""The report as a task of Prefect's. Only flows import this module: `sweep report` needs no Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.report.write import Drawn, ReportPaths, write_report


@task(name="report", task_run_name="report", cache_policy=NO_CACHE, persist_result=False)
def report(sweep_dir: Path, mlflow_links: Mapping[str, str] | None = None, drawn: Drawn | None = None) -> ReportPaths:
    """results.parquet, report and figures of a sweep, finished or not. `mlflow_links`: trial key -> address of its run.

    `drawn`: the figures, where an earlier call drew them from the same trials.
    """
    written = write_report(sweep_dir, mlflow_links=mlflow_links, drawn=drawn)
    return replace(written, made=None)  # a flow would hold all trials of a sweep in memory
