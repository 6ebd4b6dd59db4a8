"""Whether MLflow has all of a sweep already. Looks, and changes nothing."""

from __future__ import annotations

from cluster.journal.journal import last_checksum
from cluster.trial_layout import JOURNAL
from experiments.config.errors import DamagedFile
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_record import checked
from tasks.tracking import pages
from tasks.tracking.client import connect
from tasks.tracking.log_trial import stamp
from tasks.tracking.runs import ALL_PUBLISHED, digest_of, search


def is_published(store: SweepStore, plan: Plan) -> bool:
    """True if the sweep's own run has ended and says that every trial's run is complete, of its result and journal as they are now.

    Asks for that one run, however many trials there are: whether somebody removed a trial's run since is not seen. False also where MLflow
    does not answer and where a file is damaged: who publishes then finds out, and says so.
    """
    try:
        client = connect()
        experiment = client.get_experiment_by_name(plan.name)
        own = search(client, experiment.experiment_id, pages.parent_of(plan.sweep_id)) if experiment else []
    except Exception:  # whatever MLflow, its database or the network can think of
        return False
    if not own or any(run.info.status == "RUNNING" for run in own):
        return False
    stamps = []
    try:
        for trial in plan.trials:
            folder = store.trial_dir(trial.key)
            found = checked(trial, folder)
            if found.damage is not None:
                return False
            if (result := found.result) is not None:
                stamps.append((trial.key, result.attempt, stamp(last_checksum(folder / JOURNAL), result)))
    except DamagedFile:
        return False
    return any(run.data.tags.get(ALL_PUBLISHED) == digest_of(stamps) for run in own)
