"""Whether MLflow has all of a sweep already. Looks, and changes nothing."""

from __future__ import annotations

from experiments.config.errors import DamagedFile
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_record import measured_journal
from tasks.tracking import pages
from tasks.tracking.client import connect
from tasks.tracking.log_trial import stamp_of
from tasks.tracking.runs import PUBLISHED, search


def is_published(store: SweepStore, plan: Plan) -> bool:
    """True if the sweep's own run has ended and every trial with a result has a whole run, of its journal as that is now.

    False also where MLflow does not answer and where a file is damaged: who publishes then finds out, and says so.
    """
    try:
        client = connect()
        experiment = client.get_experiment_by_name(plan.name)
        if experiment is None:
            return False
        own = search(client, experiment.experiment_id, pages.parent_of(plan.sweep_id))
        runs = search(client, experiment.experiment_id, pages.trials_of(plan.sweep_id))
    except Exception:  # whatever MLflow, its database or the network can think of
        return False
    there = {(run.data.tags.get("trial.key"), run.data.tags.get("trial.attempt"), run.data.tags.get(PUBLISHED)) for run in runs}
    running = any(run.info.status == "RUNNING" for run in [*own, *runs])
    try:
        results = [result for trial in plan.trials if (result := store.result(trial.key)) is not None]
        wanted = {
            (result.key, str(result.attempt), stamp_of(measured_journal(store.trial_dir(result.key), result, result.key), result))
            for result in results
        }
    except DamagedFile:
        return False
    return bool(own) and not running and wanted <= there
