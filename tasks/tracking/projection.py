"""Project a whole sweep onto MLflow from its journals. Repeating it changes nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import Logger, LoggerAdapter, getLogger
from pathlib import Path

from cluster.disk_errors import FULL, disk_error
from experiments.config.errors import DamagedFile
from experiments.trial import Outcome, TrialResult
from tasks.analysis.held_files import read_kept
from tasks.analysis.held_time import HeldTime
from tasks.sweep.store import Plan, SweepStore, readable_result
from tasks.sweep.trial_record import measured_journal
from tasks.tracking import pages
from tasks.tracking.client import check_database, connect, tracking_uri, ui_url, why
from tasks.tracking.finish_sweep import finish_sweep
from tasks.tracking.log_trial import finish_trial, stamp_of
from tasks.tracking.runs import SweepRuns, digest_of

_SQLITE_FULL = "database or disk is full"  # SQLITE_FULL, in the words of whatever library passes it on


@dataclass(frozen=True)
class Published:
    """Where a sweep is in MLflow. `base`: the server's address with a final slash, even if no server is running."""

    sweep_id: str
    base: str
    experiment_id: str
    parent: str
    trials: dict[str, str]  # trial key -> address of its run

    @property
    def served(self) -> bool:
        """True if the runs were published to a server, and not to a local database."""
        return tracking_uri().startswith("http")

    @property
    def table(self) -> str:
        """Address of the sweep's trials as a table."""
        return self.base + pages.table_link(self.experiment_id, self.sweep_id)

    @property
    def charts(self) -> str:
        """Address of the sweep's trials as charts."""
        return self.base + pages.charts_link(self.experiment_id, self.sweep_id)


def publish_sweep(
    store: SweepStore,
    plan: Plan,
    artifacts: Iterable[Path],
    reason: str | None,
    *,
    headline: str = "",
    wait_s: float,
    log: Logger | LoggerAdapter[Logger] | None = None,
    waiting: Callable[[str], None] | None = None,
) -> Published:
    """Publish every finished trial from its journal and close the sweep's own run. `headline`: what it found, in Markdown, for its note.

    Retries for `wait_s` seconds while MLflow does not answer or its database is locked, which `waiting` is told, then raises MLflow's
    error. Raises DamagedFile for a journal that was changed by others, after publishing all other trials. What no waiting mends is raised
    at once: DamagedFile for a damaged database, and what MLflow raises where its disk is full.
    """
    deadline = time.monotonic() + wait_s
    pause = 1.0
    while True:
        try:
            return _publish_once(store, plan, list(artifacts), reason, headline)
        except DamagedFile:
            raise
        except Exception as error:
            check_database(thorough=True)
            if time.monotonic() + pause > deadline or disk_error(error) is FULL or _SQLITE_FULL in str(error):
                raise
            (log or getLogger(__name__)).warning("MLflow does not answer (%s); again in %.0f s", why(error), pause)
            if waiting:
                waiting(f"does not answer ({why(error)}); it is asked for up to {wait_s:.0f} s")
            time.sleep(pause)
            pause = min(pause * 2, 10.0)


def _publish_once(store: SweepStore, plan: Plan, artifacts: list[Path], reason: str | None, headline: str) -> Published:
    runs = SweepRuns(connect(), plan)
    run_ids: dict[str, str] = {}
    stamps: list[tuple[str, int, str]] = []
    damaged: DamagedFile | None = None
    results = {trial.key: readable_result(store, trial.key) for trial in plan.trials}
    for trial in plan.trials:
        if (result := results[trial.key]) is None:
            continue
        folder = store.trial_dir(trial.key)
        try:
            journal = measured_journal(folder, result, trial.key)
            run_ids[trial.key] = finish_trial(runs, trial, journal, result, folder)
            stamps.append((trial.key, result.attempt, stamp_of(journal, result)))
        except DamagedFile as error:
            damaged = damaged or error
    states = {key: result.outcome if result else None for key, result in results.items()}
    metrics = {**sweep_metrics(plan, results), **held_metrics(store)}
    finish_sweep(runs, states, artifacts, reason, metrics, headline=headline, published="" if damaged else digest_of(stamps))
    if damaged:
        raise damaged
    base = f"{ui_url()}/"
    links = {key: base + pages.run_link(runs.experiment_id, run_id) for key, run_id in run_ids.items()}
    return Published(plan.sweep_id, base, runs.experiment_id, runs.parent, links)


def held_metrics(store: SweepStore) -> dict[str, float]:
    """How long the pools were held (slot-seconds) and which share of it was measured, without emulated trials; {} where it is unknown.

    As the sweep's last report found it.
    """
    kept = read_kept(store.dir)
    held = HeldTime([trial for trial in kept.trials if not trial.emulated]) if kept else None
    if held is None or held.measured_share is None:
        return {}
    return {"held_s": held.seconds, "held_share_measured": held.measured_share}


def sweep_metrics(plan: Plan, results: Mapping[str, TrialResult | None]) -> dict[str, float]:
    """Metrics of the sweep's own run: the number of trials by outcome, and the best throughput (samples/s) without emulated trials."""
    counts = Counter(f"trials_{result.outcome if result else 'not_run'}" for result in results.values())
    metrics = {"trials": float(len(results)), **{name: float(count) for name, count in counts.items()}}
    emulated = {trial.key for trial in plan.trials if trial.emulated}
    rates = [
        rate
        for key, result in results.items()
        if result is not None
        and result.outcome is Outcome.OK
        and not (key in emulated or result.emulated)
        and isinstance(rate := result.summary.get("throughput"), float)
    ]
    return {**metrics, "best_throughput": max(rates)} if rates else metrics
