"""The steps of a night that Prefect shows as tasks, in their order. Only the flow imports them: nothing else needs Prefect at import."""

from __future__ import annotations

import time
from pathlib import Path

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from tasks.nightly import notify
from tasks.nightly.close import close_night
from tasks.nightly.history import past_nights
from tasks.nightly.night_run import NightRun
from tasks.nightly.report import headline, message, write_night
from tasks.nightly.tracking import publish_night

Links = list[tuple[str, str]]  # name and address


@task(name="history", task_run_name="history", cache_policy=NO_CACHE, persist_result=False)
def read_past(run: NightRun) -> None:
    """Read the past nights from MLflow. Raises HistoryError where it does not answer."""
    run.past = past_nights(run.night.name, run.plan.name, run.night.date)


@task(name="verdicts", task_run_name="verdicts", cache_policy=NO_CACHE, persist_result=False)
def decide(run: NightRun) -> None:
    """The night's final verdicts, which close it, unless it is closed already."""
    close_night(run)


@task(name="report", task_run_name="report", cache_policy=NO_CACHE, persist_result=False)
def report(run: NightRun) -> tuple[Path, Path]:
    """report.md and report.html with their figures; returns both paths."""
    return write_night(run.nights, run.definition, run.night, run.past, run.tonight(), run.nights.changes())


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
def publish(run: NightRun, page: Path) -> Links:
    """Verdicts and report to MLflow; returns links to them. A failure becomes a remark, since the night's own files are complete."""
    files = [page.with_name("report.md"), page, page.with_name("figures")]
    try:
        return publish_night(run.night, run.plan, files, run.nights.changes())
    except Exception as error:
        get_run_logger().warning("the night is not in MLflow: %s", error)
        run.remark(f"The verdicts are not in MLflow ({type(error).__name__}).")
        return []


@task(name="notify", task_run_name="notify", cache_policy=NO_CACHE, persist_result=False)
def tell(run: NightRun, links: Links) -> None:
    """One message through each of the definition's notification blocks that has not had it; then the night is over.

    A failure becomes a remark.
    """
    nights = [night for night in run.nights.all() if night.date <= run.night.date]
    subject, text = headline(run.night), message(run.night, nights, run.nights.changes(), links)
    for block in run.definition.notify:
        sent, problems = notify.send_all([block], run.night.notified, subject, text)
        for problem in problems:
            get_run_logger().error("%s", problem)
        run.save(notified=sent)  # after each: a flow that goes on from here sends to the others only
        run.remark(*(f"Not told: {problem}." for problem in problems))
    run.save(told_at=time.time())
