"""Publishing to MLflow as a task of Prefect's. Only flows import this module: `sweep stop` publishes without Prefect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from tasks.sweep.store import Plan, SweepStore
from tasks.tracking.projection import Published, publish_sweep

_WAIT_S = 60.0  # for an MLflow that does not answer


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
def publish(
    store: SweepStore, plan: Plan, files: Sequence[Path], headline: str = "", waiting: Callable[[str], None] | None = None
) -> Published:
    """Every trial that ended, and the sweep's own run with `files` and `headline`, to MLflow. Raises what `publish_sweep` does."""
    log = get_run_logger()
    return publish_sweep(store, plan, files, store.stop_reason(), headline=headline, wait_s=_WAIT_S, log=log, waiting=waiting)
