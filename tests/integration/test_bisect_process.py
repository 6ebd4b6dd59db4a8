"""`sweep bisect` as a process that is told to end, or killed: its trial ends, and the same question goes on with what was measured."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster.launchers import processes
from experiments.config.paths import runs_root
from experiments.trial import Trial
from tests.cli_support import DEADLINE_S, start, until
from tests.integration.test_trials_of_commits import commits

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
__all__ = ["commits"]  # a fixture

# The command line with the commits of another repository; tests may run under nohup, which has what they start ignore SIGHUP
_COMMAND = """
import signal, sys
from functools import partial
from pathlib import Path
from cluster.commits import trees
from experiments.config.paths import runs_root
from flows.cli import main
from tasks.nightly import bisect
signal.signal(signal.SIGHUP, signal.SIG_DFL)
root, folder = Path(sys.argv.pop(1)), runs_root() / trees.NAME
bisect.commits_between = partial(bisect.commits_between, root=root)
trees._mine[folder] = trees.Worktrees(folder, root)
main()
"""


def test_told_to_end_it_ends_its_trial_and_goes_on_with_its_pairs(tmp_path: Path, commits: list[str]) -> None:
    """One pair is whole; of the second, third and fourth a signal ends the first trial."""
    good, bad = commits
    arguments = ["bisect", "two none", good, bad, "--name", "small"]
    for begun, number in enumerate((signal.SIGTERM, signal.SIGHUP, signal.SIGINT), 2):
        process = started(*arguments, folder=tmp_path)
        told = until(lambda begun=begun: list(runs_root().glob(f"bisect/*/pair-{begun:03d}/*/trial.json")), process)  # type: ignore[misc]
        process.send_signal(number)
        text, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1, text
        assert f"interrupted; go on with it: sweep bisect {cell_of(text)} {good} {bad} --most 12 --name small\n" in text
        assert ("; going on after 1 pair\n" in text) is (begun > 2)
        assert processes.of_trial(Trial.model_validate_json(told[0].read_text()).key) == []
    [folder] = (runs_root() / "bisect").iterdir()
    trials = {pair.name: [trial.name for trial in sorted(pair.iterdir())] for pair in folder.glob("pair-*")}
    half = [f"1-{bad[:12]}"]
    assert trials == {"pair-001": [f"1-{good[:12]}", f"2-{bad[:12]}"], "pair-002": half, "pair-003": half, "pair-004": half}


def test_killed_it_leaves_no_process_of_its_trial(tmp_path: Path, commits: list[str]) -> None:
    """Nobody else need end it: the next command may be a bisection of other commits, a sweep or a night."""
    process = started("bisect", "two none", *commits, "--name", "small", folder=tmp_path)
    [told] = until(lambda: list(runs_root().glob("bisect/*/pair-001/1-*/trial.json")), process)
    trial = until(lambda: processes.of_trial(Trial.model_validate_json(told.read_text()).key), process)
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert psutil.wait_procs(trial, timeout=DEADLINE_S)[1] == []
    assert not (told.parent / "result.json").exists(), "it did not come to its end"


def started(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return start(
        *arguments,
        folder=folder,
        through=lambda command: [sys.executable, "-c", _COMMAND, str(folder / "repository"), *command[3:]],
    )


def cell_of(text: str) -> str:
    """The id of the cell, which the hint names: a name may fit more cells later."""
    return text.partition("sweep bisect ")[2].split(" ")[0]
