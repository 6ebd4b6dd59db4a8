"""Read a trial's result.json."""

from __future__ import annotations

from pathlib import Path

from cluster import launchers
from cluster.trial_layout import RESULT
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model
from experiments.trial import Outcome, TrialResult

AGAIN = "`sweep resume` keeps it aside and runs the trial again"


def read_result(folder: Path, key: str | None = None) -> TrialResult | None:
    """A trial's result; None while there is none. Raises DamagedFile, also for the result of another trial than `key`.

    A disturbed measurement that is measured again stays the result, although that attempt's process has overwritten its file, unless it
    ended ok.
    """
    result = last_result(folder, key)
    if result is None or result.outcome is Outcome.OK:
        return result
    launch = launchers.load(folder)
    return result if launch is None or launch.replaces is None or result.attempt != launch.attempt else launch.replaces


def forget_result(folder: Path, attempt: int) -> None:
    """Remove the result of an earlier flow that could not start this attempt, which now begins: else it would be taken for that of the
    attempt until its own is there, and a later flow would end a running attempt as one that was cancelled. Raises DamagedFile, OSError."""
    result = last_result(folder)
    if result is not None and result.attempt == attempt:
        (folder / RESULT).unlink()


def last_result(folder: Path, key: str | None = None) -> TrialResult | None:
    """What result.json says: of the last attempt that wrote it. None and errors as in `read_result`."""
    result = read_model(folder / RESULT, TrialResult, AGAIN)
    if result is not None and key not in (None, result.key):
        raise DamagedFile(folder / RESULT, "", f"is of trial {result.key}", AGAIN)
    return result
