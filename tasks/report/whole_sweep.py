"""Whether a sweep is whole and as its flow left it: what may be published."""

from __future__ import annotations

from pathlib import Path

from cluster.trial_layout import JOURNAL, PLAN, RESULT, STEPS, TRIAL
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model
from experiments.trial import Outcome, Trial, TrialResult
from tasks.analysis.results import ResultsError, Sweep, load_sweep, meta_of, read_parquet, steps_table
from tasks.report.other_code import what_mends
from tasks.report.provenance import strays
from tasks.sweep.result_file import AGAIN, read_result
from tasks.sweep.seal import why_unsealed
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_record import damage_of, journal_of


def why_not_whole(store: SweepStore, part: Plan | None = None) -> list[str]:
    """Each reason not to publish the sweep, with the file that it is about; [] for a whole one. Raises StoreError without a plan.

    The plan must be sealed; every trial ended for good, with files that are its own; all ran the code that was planned. `part`: the plan
    without the trials that are not to be published, which may be as they are.
    """
    try:
        plan = store.load_plan()
    except DamagedFile as error:
        return [str(error)]
    if why := why_unsealed(store.dir / PLAN):
        return [why]
    if plan.sweep_id != store.sweep_id:
        return [f"{store.dir / PLAN} is the plan of sweep {plan.sweep_id}"]
    plan = part or plan
    problems = [f"{store.dir}: a process works on it; `sweep stop {store.sweep_id}` ends it"] if store.is_held() else []
    for trial in plan.trials:
        problems += _of_trial(trial, store)
    return problems or _of_trees(load_sweep(store.dir, plan))


def _of_trial(trial: Trial, store: SweepStore) -> list[str]:
    folder = store.trial_dir(trial.key)
    if trial.sweep_id != store.sweep_id:
        return [f"{store.dir / PLAN}: trial {trial.key} belongs to sweep {trial.sweep_id}"]
    if (damage := damage_of(trial, folder)) is not None:
        return [str(damage)]
    told, result = read_model(folder / TRIAL, Trial, AGAIN), read_result(folder)
    if told is None or result is None:
        goes_on = f"`sweep resume {store.sweep_id}`"
        what = f"the trial is still to do: {goes_on}" if result is None else f"{goes_on} writes it again, and measures nothing anew"
        return [f"{folder / (TRIAL if told is None else RESULT)} does not exist: {what}"]
    if told.model_copy(update={"data": trial.data}) != trial:  # the key has their fingerprint; the folder of sweeps may have been moved
        moved = told.sweep_id != trial.sweep_id
        return [f"{folder / TRIAL} {f'belongs to sweep {told.sweep_id}' if moved else 'differs from the trial in the plan'}"]
    if not result.outcome.final:
        return [f"{folder / RESULT}: the trial ended as {result.outcome}; `sweep resume {store.sweep_id}` runs it again"]
    return _of_journal(trial, result, folder)


def _of_journal(trial: Trial, result: TrialResult, folder: Path) -> list[str]:
    """What is wrong with the journal, and with the steps that were derived from it."""
    path, ok = folder / JOURNAL, result.outcome is Outcome.OK
    if not path.exists():
        return [f"{path} does not exist"] if ok or (folder / STEPS).exists() else []
    journal = journal_of(folder, result)
    if journal.attempt and journal.trial != trial.key:
        return [f"{path} is of {f'trial {journal.trial}' if journal.trial else 'a trial that it does not name'}"]
    if ok and journal.attempt != result.attempt:
        return [f"{path} is of attempt {journal.attempt}, and {RESULT} of attempt {result.attempt}"]
    if ok and (journal.end is None or journal.end["outcome"] != Outcome.OK):
        return [f"{path} does not end as ok, and {RESULT} does"]
    return _of_steps(folder)


def _of_steps(folder: Path) -> list[str]:
    path = folder / STEPS
    if not path.exists():
        return []
    try:
        table, derived = read_parquet(path, "`sweep report` writes it again"), steps_table(folder)
    except ResultsError as error:
        return [str(error)]
    if meta_of(table).get("journal_checksum") != meta_of(derived)["journal_checksum"] or table.to_pylist() != derived.to_pylist():
        return [f"{path} is not what {JOURNAL} beside it gives; `sweep report` writes it again"]
    return []


def _of_trees(sweep: Sweep) -> list[str]:
    """Whether all trials ran the planned code. A trial that ended before it told its environment ran none that could be seen."""
    problems = [f"{sweep.dir}: {problem}" for problem in sweep.problems]
    if sweep.plan.tree is None:
        return [*problems, f"{sweep.dir / PLAN} does not tell which code was to run"]
    for (tree, planned), rows in strays(sweep).items():
        ran = f"tree {tree} ran in {len(rows)} of {len(sweep.rows)} trials, and tree {planned} was planned"
        problems.append(f"{sweep.dir}: {ran}; {what_mends(sweep, planned, rows)}")
    return problems
