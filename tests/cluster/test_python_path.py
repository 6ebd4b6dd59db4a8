"""Processes that are started in a folder whose files are named like our modules import ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.launchers.command import ENTRY, trial_environment
from cluster.python_path import environment_of
from experiments.config.paths import REPOSITORY
from tests.contracts import make_trial

KEY = "ba5e000000000001"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("cluster", "experiments", "tasks", "flows", "psutil", "numpy", "torch"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of the working directory was imported')")
    monkeypatch.chdir(folder)
    return folder


def test_its_process_imports_from_no_other_checkout() -> None:
    variables = environment_of(Path("/tree"), {"PYTHONPATH": f"{REPOSITORY}:/mine::"})
    assert variables == {"PYTHONPATH": "/tree:/mine", "PYTHONSAFEPATH": "1"}
    assert environment_of(REPOSITORY, {}) == {"PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize("arguments", [["-c", "import cluster, psutil; print(cluster.__path__)"], [*ENTRY, "--help"]])
def test_a_trials_process_imports_our_modules(hostile: Path, tmp_path: Path, arguments: list[str]) -> None:
    environment = {**os.environ, **trial_environment(make_trial(tmp_path / "trial", KEY))}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(REPOSITORY / "cluster") in done.stdout or "usage: " in done.stdout
    bare = {name: value for name, value in environment.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, *arguments], env=bare, capture_output=True, text=True, check=False)
    assert "of the working directory was imported" in done.stderr, "the folder would have been imported from"


def test_the_variables_of_a_trial_of_a_commit_name_its_tree_alone(tmp_path: Path) -> None:
    variables = trial_environment(make_trial(tmp_path / "trial", KEY), Path("/tree"))
    assert variables["PYTHONPATH"].split(os.pathsep)[0] == "/tree" and variables["PYTHONSAFEPATH"] == "1"
    assert str(REPOSITORY) not in variables["PYTHONPATH"].split(os.pathsep)
