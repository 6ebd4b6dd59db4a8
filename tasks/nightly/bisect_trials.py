"""The trials of `sweep bisect`: pairs of two commits, each trial a fresh process of its commit's own code.

A bisection has a folder in runs/bisect. Called again, one that did not come to its end takes from there the pairs that count.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from cluster.commits.told import told
from cluster.launchers import processes
from cluster.process_marks import MARK
from cluster.python_path import environment_of
from cluster.trial_layout import LOG, TRIAL
from experiments import parent_death
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.strict import Strict
from experiments.json_file import read_model, sealed_text
from experiments.trial import Trial, digest
from tasks.nightly.bisect import BisectError, Bisection, PairValues, value_of
from tasks.sweep.result_file import read_result

_TRIAL_S = 3600.0
_GRACE_S = 5.0  # a trial that is told to end has so long to do it, as in a sweep
_QUESTION, _END = "question.json", "bisection.json"
_AGAIN = "`sweep bisect` begins a new folder"


class Question(Strict):
    """What a bisection asks. Pairs of another one cannot be taken."""

    cell: str
    metric: str
    good: str
    bad: str
    most: int
    trial: str


def question(trial: Trial, cell: str, metric: str, good: str, bad: str, most: int) -> Question:
    """Of a trial with all that its key has but the code, which is the commits' own."""
    parts = {name: value for name, value in trial.key_parts.items() if name != "code"}
    return Question(cell=cell, metric=metric, good=good, bad=bad, most=most, trial=digest(parts))


def bisection_folder(root: Path, asked: Question) -> Path:
    """The folder of the newest bisection of this question that did not come to its end; a new one in `root` where there is none."""
    for folder in sorted(root.iterdir(), reverse=True) if root.is_dir() else ():
        with suppress(DamagedFile):
            if read_model(folder / _QUESTION, Question, _AGAIN) == asked and not (folder / _END).exists():
                return folder
    folder = root / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    atomic_write(folder / _QUESTION, sealed_text(asked))
    return folder


def save_end(folder: Path, bisection: Bisection) -> None:
    """Keep what a bisection came to: the next one of its question measures anew."""
    atomic_write(folder / _END, json.dumps(bisection.as_json(), indent=1))


Ending = Callable[[], AbstractContextManager[None]]


class BisectPairs:
    """Measures pairs of commits one after the other, each in a folder `pair-NNN`. `tree`: the files of a commit.

    `known`: how many pairs an interrupted call left. They are taken as long as the same pairs are asked for. A pair that was disturbed is
    not taken, nor one of which a trial is missing: the trials of a pair must be neighbours in time. `ending`: where a trial is ended
    early, so that no further signal breaks that off. `self.trial` is what it runs: `trial` with a key of this call's own.
    """

    def __init__(self, folder: Path, trial: Trial, metric: str, tree: Callable[[str], Path], ending: Ending = nullcontext) -> None:
        self._folder, self._metric, self._tree, self._ending = folder, metric, tree, ending
        # Processes are found by their key. A night's trial of the same one may run beside it; and the guard (bisect_guard.py) of an earlier
        # call of this bisection, which was killed a moment ago, may still be ending that one's
        self.trial = trial.model_copy(update={"key": secrets.token_hex(8)})
        there = sorted(folder.glob("pair-*"))
        self._last = int(there[-1].name.removeprefix("pair-")) if there else 0
        self._known = [(_commits(pair), values) for pair in there if (values := self._whole(pair)) and not values.disturbed]
        self.known = len(self._known)

    def measure(self, first: str, second: str) -> PairValues:
        """Both commits in this order, as `bisect.MeasurePair`. Raises BisectError, CommitError."""
        names = [f"{number}-{commit[:12]}" for number, commit in enumerate((first, second), 1)]
        if self._known and self._known[0][0] == names:
            return self._known.pop(0)[1]
        self._known.clear()
        self._last += 1
        trees = [self._tree(commit) for commit in (first, second)]  # first: no checkout comes between the two trials
        pair = self._folder / f"pair-{self._last:03d}"
        for name, tree in zip(names, trees, strict=True):
            run_once(tree, self.trial, pair / name, self._metric, self._ending)
        return self._values([pair / name for name in names])

    def _whole(self, pair: Path) -> PairValues | None:
        names = _commits(pair)
        with suppress(BisectError):
            return self._values([pair / name for name in names]) if len(names) == 2 else None
        return None

    def _values(self, trials: Sequence[Path]) -> PairValues:
        first, second = (_value_in(trial, self._metric) for trial in trials)
        return PairValues(first[0], second[0], first[1] or second[1])


def _commits(pair: Path) -> list[str]:
    return sorted(trial.name for trial in pair.iterdir())


def run_once(tree: Path, trial: Trial, out: Path, metric: str, ending: Ending = nullcontext) -> None:
    """One trial of the code in `tree`, in a process of its own with its own session. None of its processes is left afterwards.

    What interrupts it ends the trial first: SIGTERM, some seconds, then SIGKILL. Where this process is killed the kernel kills the trial's.
    Raises BisectError if the trial did not end ok, with its reason and where its log is, and CommitError for code that is too old for it.
    """
    out.mkdir(parents=True)
    atomic_write(out / TRIAL, told(trial, tree))
    # The guard (bisect_guard.py) finds it by its mark, which it has only once its program has begun
    ends_with_this = [sys.executable, "-IS", parent_death.__file__, str(os.getpid())]
    command = [sys.executable, "-m", "cluster.worker.main", "--trial", str(out / TRIAL), "--out", str(out), "--attempt", "1"]
    environment = {**os.environ, **environment_of(tree, os.environ), MARK: trial.key}
    process: subprocess.Popen[bytes] | None = None
    try:
        with open(out / LOG, "wb") as log:
            process = subprocess.Popen(
                [*ends_with_this, *command],
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process.wait(_TRIAL_S)
        processes.end_all(trial.key)  # what the trial itself has started would run beside the next measurement
    except BaseException as error:  # SIGTERM and Ctrl-C are no Exceptions
        with ending():
            _end(process, trial.key)
        if isinstance(error, subprocess.TimeoutExpired):
            raise BisectError(f"a trial of {tree.name} took more than {_TRIAL_S:.0f} s; its log is {out / LOG}") from None
        raise
    _value_in(out, metric)


def _end(process: subprocess.Popen[bytes] | None, key: str) -> None:
    if process is not None and process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    processes.end_all(key)
    if process is not None:
        process.wait()


def _value_in(out: Path, metric: str) -> tuple[float, str | None]:
    """`bisect.value_of` a trial's folder. Raises BisectError where the trial left no value, with its reason and where its log is."""
    trial, log = f"a trial of {out.name.partition('-')[2]}", f"its log is {out / LOG}"
    try:
        result = read_result(out)
        if result is not None:
            return value_of(result, metric, trial)
    except DamagedFile as error:
        raise BisectError(f"{trial}: {error}; {log}") from None
    except BisectError as error:
        raise BisectError(f"{error}; {log}") from None
    raise BisectError(f"{trial} left no result; {log}")
