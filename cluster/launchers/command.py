"""The command line and the environment of a trial's process, the same for every launcher."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cluster.kept_files import KEPT
from cluster.pools.pool import Pool
from cluster.process_marks import MARK, POOL_MARK
from cluster.python_path import environment_of
from cluster.trial_layout import TRIAL
from experiments.config.paths import REPOSITORY, runs_root
from experiments.trial import Trial

ENTRY = ["-m", "cluster.worker.main"]  # a trial's entry point, as Python's arguments
WARM_DEVICES = ("cpu", "cuda")  # of trials forked from a template; Habana's bridge starts threads when it is imported
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    # Ray Train: what a benchmark does not need, each a thread or a second at start-up
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
}


def trial_command(trial_dir: Path, attempt: int, store: str | None = None, told: str = TRIAL) -> list[str]:
    """Arguments after the Python executable: the trial's entrypoint. `store`: the trial's folder on storage, instead of `trial_dir`.

    `told`: the file in `trial_dir` that the trial's process reads.
    """
    if store:
        return [*ENTRY, "--store", store, "--attempt", str(attempt)]
    folder = trial_dir.resolve()
    return [*ENTRY, "--trial", str(folder / told), "--out", str(folder), "--attempt", str(attempt)]


def warm_command(key: str, workload: str, arguments: Sequence[str]) -> list[str]:
    """As `trial_command`, of which `arguments` is the result: a job's trial that is forked from the node's template `key`."""
    return ["-m", "cluster.worker.warm_job", "--template", key, "--workload", workload, "--", *arguments[len(ENTRY) :]]


def trial_environment(trial: Trial, tree: Path | None = None) -> dict[str, str]:
    """Environment variables that a trial started by this process gets in addition to this process's own. `tree`: its commit's files."""
    return {**_common(trial), KEPT: str(runs_root()), **environment_of(tree or REPOSITORY, os.environ)}


def job_environment(trial: Trial, pool: Pool) -> dict[str, str]:
    """Environment variables of a trial's Ray job. The job finds its code in its working directory."""
    return {
        **_common(trial),
        POOL_MARK: pool.name,
        # The pool's `python` and its Ray may differ in the patch version: nothing pickled passes between them
        "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
        **({"SWEEPBENCH_IMAGE": pool.image} if pool.image else {}),
        **pool.env,
    }


def _common(trial: Trial) -> dict[str, str]:
    """Variables of every trial. They switch access to the Hugging Face hub off unless the trial names a hub."""
    hub = [value for value in trial.parameters.values() if isinstance(value, str) and value.startswith("hf://")]
    offline = {} if hub or trial.parameters.get("revision") else {"HF_HUB_OFFLINE": "1"}
    return {**_QUIET, **offline, MARK: trial.key}
