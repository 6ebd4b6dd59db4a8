"""Both launchers keep one contract: start, follow to the end, find again from plain data, stop with nothing left running.

The local launcher is held to it here; the Ray job launcher, which needs a Ray head, in tests/integration/test_ray_jobs.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import local
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from experiments.trial import Outcome
from tests.contracts import launcher_contract, make_trial, result_of, wait

TESTS = Path(__file__).parents[2]
POOL = Pool(name="cpu", device="cpu", address="embedded")


def test_the_local_launcher_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a worker that starts in a moment; the real one is below."""
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(TESTS / "workloads_for_tests"))
    monkeypatch.setattr(local, "trial_command", lambda folder, attempt, told: [str(TESTS / "light_worker.py"), str(folder), str(attempt)])
    launcher_contract(lambda: LocalLauncher(POOL), tmp_path)


def test_the_local_launcher_runs_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder that is not the one it was started in."""
    monkeypatch.chdir(tmp_path)
    trial = make_trial(Path("trial"), "aaaa000000000001")
    launcher = LocalLauncher(POOL)
    launch = launcher.start(trial, Path("trial"), 1)
    status = wait(launcher, launch)
    assert status.exit_code == 0, launcher.log(launch, Path("trial"))
    assert result_of(Path("trial")).outcome is Outcome.OK
    journal = read_journal(Path("trial") / "journal.jsonl")
    assert [step["step"] for step in journal.steps] == list(range(1, 8))
    assert f"--- attempt {journal.attempt} at 20" in launcher.log(launch, Path("trial"))
    assert os.listdir() == ["trial"]  # noqa: PTH208
    launcher.stop(launch)
