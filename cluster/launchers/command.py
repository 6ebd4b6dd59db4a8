"""The one command line and environment of a trial's process, whoever starts it."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.pools.pool import Pool
from cluster.process_marks import MARK, POOL_MARK
from cluster.trial_layout import TRIAL
from experiments.config.paths import REPOSITORY
from experiments.trial import Trial

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


def trial_command(trial_dir: Path, attempt: int, store: str | None = None) -> list[str]:
    """Arguments after the Python executable: the trial's entrypoint. `store`: the trial's folder on storage, in place of `trial_dir`."""
    if store:
        return ["-m", "cluster.worker.main", "--store", store, "--attempt", str(attempt)]
    folder = trial_dir.resolve()
    return ["-m", "cluster.worker.main", "--trial", str(folder / TRIAL), "--out", str(folder), "--attempt", str(attempt)]


def trial_environment(trial: Trial) -> dict[str, str]:
    """Variables added to those of this process for a trial that it starts."""
    return {**_common(trial), "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))}


def job_environment(trial: Trial, pool: Pool) -> dict[str, str]:
    """Variables of a trial's Ray job. Its code is its working directory."""
    return {
        **_common(trial),
        POOL_MARK: pool.name,
        # A pool's own `python` may be another patch version than its Ray's; nothing that is pickled crosses a version
        "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
        **({"SWEEPBENCH_IMAGE": pool.image} if pool.image else {}),
        **pool.env,
    }


def _common(trial: Trial) -> dict[str, str]:
    """Hub access is off unless the trial names a hub."""
    hub = [value for value in trial.parameters.values() if isinstance(value, str) and value.startswith("hf://")]
    offline = {} if hub or trial.parameters.get("revision") else {"HF_HUB_OFFLINE": "1"}
    return {**_QUIET, **offline, MARK: trial.key}
