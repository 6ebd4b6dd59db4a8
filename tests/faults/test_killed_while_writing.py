"""kill -9 between the temporary file and its rename: of trial.json, and of result.json by the trial's process and by the flow."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import processes
from experiments.trial import Outcome
from tests.cli_support import DEADLINE_S, ROOT, only_store, start, sweep
from tests.mlflow_support import check_projection

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900), pytest.mark.usefixtures("mlflow_database")]
# Python runs it as each process starts; those that are forked from a template have it from there
_HOOK = """
import os, pathlib, signal
replace = pathlib.Path.replace

def killed(temporary, target):
    name, of, fired = os.environ["KILLED_AT"].split(":")
    if pathlib.Path(target).name == name and of == ("trial" if os.environ.get("SWEEPBENCH_TRIAL") else "flow"):
        try:
            os.close(os.open(fired, os.O_CREAT | os.O_EXCL))  # once
        except FileExistsError:
            pass
        else:
            pathlib.Path(fired).write_text(str(temporary))
            os.kill(os.getpid(), signal.SIGKILL)
    return replace(temporary, target)

if "KILLED_AT" in os.environ:
    pathlib.Path.replace = killed
"""


@pytest.fixture
def aimed(tmp_path: Path) -> dict[str, str]:
    """Variables of a command of which a process kills itself, once `KILLED_AT` is set to file:process:marker."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(_HOOK)
    return {"PYTHONPATH": f"{hooks}:{ROOT}"}


@pytest.mark.parametrize(("file", "process"), [("trial.json", "flow"), ("result.json", "trial"), ("result.json", "flow")])
def test_a_file_is_there_whole_or_not_at_all_and_nothing_is_lost(tmp_path: Path, aimed: dict[str, str], file: str, process: str) -> None:
    fired = tmp_path / "fired"
    first = start("run", "one_of_three", folder=tmp_path, KILLED_AT=f"{file}:{process}:{fired}", **aimed)
    text, _ = first.communicate(timeout=DEADLINE_S)
    temporary = Path(fired.read_text())
    assert temporary.name.startswith(f".{file}."), "it was killed in the middle of that"
    if process == "flow":
        assert first.returncode == -signal.SIGKILL, text
        assert temporary.exists()
        status, text = sweep("resume", "last", folder=tmp_path)
    else:
        status = first.returncode
    assert status == 0, text
    store = only_store()
    assert store is not None
    trials = store.load_plan().trials
    results = [store.result(trial.key) for trial in trials]
    assert [(result.outcome, result.attempt) for result in results if result] == [(Outcome.OK, 1)] * 3, text
    assert [len(read_journal(store.trial_dir(trial.key) / "journal.jsonl").steps) for trial in trials] == [24] * 3
    check_projection(store)
    assert all(processes.of_trial(trial.key) == [] for trial in trials)
    assert not list(store.dir.rglob(f".{file}.*.tmp")), "nothing half-written stays"
