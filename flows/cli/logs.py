"""`sweep logs`: what a trial's processes printed, also while they run."""

from __future__ import annotations

import time

import typer

from cluster import launchers
from cluster.attempt_log import attempts_in, heading
from cluster.launchers import Launch
from cluster.pools.pool import find_pool, load_pools
from cluster.trial_layout import LAUNCH, LOG
from experiments.config.errors import ConfigError, UserError
from experiments.trial import Trial, TrialResult
from tasks.sweep.store import SweepStore

_LOOK_S = 0.5


class NoLog(UserError):
    """The trial has printed nothing that could be shown. The message says why."""


def print_log(store: SweepStore, trial: Trial, attempt: int | None, *, follow: bool) -> None:
    """Write it to standard output; with `follow` until the trial has ended, or nobody works on the sweep any more.

    Raises NoLog for a trial that has not begun, ConfigError for an attempt that it does not have.
    """
    shown: dict[int, int] = {}  # attempt -> characters
    while True:
        over = _is_over(store, trial)  # asked first: what is read after it is all there is
        parts = _attempts(store, trial)
        for number, part in parts.items():
            if attempt in (None, number):
                start = shown.get(number, 0)
                typer.echo(part[start:], nl=False)
                shown[number] = len(part)
        if over or not follow:
            break
        time.sleep(_LOOK_S)
    if not parts:
        state = "waits for its turn" if store.is_held() else f"has not begun; `sweep resume {store.sweep_id}` runs it"
        raise NoLog(f"{trial.name} {state}")
    if not shown:
        raise ConfigError.one("--attempt", None, str(attempt), "is no attempt of this trial", f"there is {', '.join(map(str, parts))}")


def _attempts(store: SweepStore, trial: Trial) -> dict[int, str]:
    """Attempt -> its output with a heading. The log of a Ray job that runs is still with Ray."""
    folder = store.trial_dir(trial.key)
    path = folder / LOG
    text = path.read_text(errors="replace") if path.exists() else ""
    parts = attempts_in(text) or ({1: text} if text else {})  # an early one has no headings
    launch = launchers.load(folder)
    if launch is not None and launch.launcher == "ray_job" and not launch.starting and not _ended(launch, store.result(trial.key)):
        began = heading(launch.attempt, (folder / LAUNCH).stat().st_mtime)
        parts[launch.attempt] = began + launchers.for_pool(find_pool(load_pools(), trial.pool)).log(launch, folder)
    return parts


def _is_over(store: SweepStore, trial: Trial) -> bool:
    """Whether nothing more is to come: it has ended for good, or no process works on the sweep."""
    if not store.is_held():
        return True
    result, launch = store.result(trial.key), launchers.load(store.trial_dir(trial.key))
    return result is not None and result.outcome.final and (launch is None or _ended(launch, result))


def _ended(launch: Launch, result: TrialResult | None) -> bool:
    return result is not None and result.attempt >= launch.attempt
