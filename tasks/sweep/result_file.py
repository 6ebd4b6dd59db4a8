"""Read a trial's result.json."""

from __future__ import annotations

from pathlib import Path

from cluster.trial_layout import RESULT
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model
from experiments.trial import TrialResult

AGAIN = "`sweep resume` keeps it aside and runs the trial again"


def read_result(folder: Path, key: str | None = None) -> TrialResult | None:
    """The result in a trial's folder; None while there is none. Raises DamagedFile, also for the result of another trial than `key`."""
    result = read_model(folder / RESULT, TrialResult, AGAIN)
    if result is not None and key not in (None, result.key):
        raise DamagedFile(folder / RESULT, "", f"is of trial {result.key}", AGAIN)
    return result
