"""The one command line and environment of a trial's process, whoever starts it."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.launchers.processes import MARK
from experiments.trial import Trial

ROOT = Path(__file__).resolve().parents[2]

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


def trial_command(trial_dir: Path, attempt: int) -> list[str]:
    """Arguments after the Python executable: the trial's entrypoint."""
    folder = trial_dir.resolve()
    return ["-m", "cluster.worker.main", "--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", str(attempt)]


def trial_environment(trial: Trial) -> dict[str, str]:
    """Variables added to those of the process that starts the trial. Its own hub access is off unless it names a hub."""
    hub = [value for value in trial.parameters.values() if isinstance(value, str) and value.startswith("hf://")]
    offline = {} if hub or trial.parameters.get("revision") else {"HF_HUB_OFFLINE": "1"}
    return {**_QUIET, **offline, MARK: trial.key, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
