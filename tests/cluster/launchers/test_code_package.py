"""What travels to a cluster: the code a trial's process imports and the user's workloads; no results, environments or history."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.launchers import code_package
from cluster.launchers.code_package import PackageError, build
from tests.contracts import make_trial, result_of


def extra(folder: Path) -> Path:
    (folder / "workloads").mkdir(parents=True)
    (folder / "workloads" / "mine.py").write_text("from experiments.workloads.synthetic import *  # noqa\n")
    (folder / "runs").mkdir()
    (folder / "runs" / "secret.json").write_text("{}")
    return folder


def test_the_package_runs_a_trial_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(extra(tmp_path / "extra")))
    made = build()
    assert build() == made
    assert made.folder.parent == tmp_path / "runs" / ".packages"
    names = {path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file()}
    assert {
        "cluster/worker/main.py",
        "cluster/devices/peaks.csv",
        "experiments/workloads/synthetic.py",
        "extra/0/workloads/mine.py",
    } <= names
    assert {name.split("/")[0] for name in names} == {"cluster", "experiments", "extra"}
    assert not [name for name in names if "runs" in name or ".git" in name or ".venv" in name or "__pycache__" in name or "stack" in name]
    assert made.environment["SWEEPBENCH_EXTRA"] == "extra/0"
    folder = tmp_path / "trial"
    make_trial(folder, "cccc000000000001", workload="mine")
    command = ["-m", "cluster.worker.main", "--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", "1"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", **made.environment}
    done = subprocess.run(
        [sys.executable, "-P", *command], cwd=made.folder, env=environment | {"PYTHONPATH": str(made.folder)}, check=False
    )
    assert done.returncode == 0
    assert result_of(folder).outcome == "ok"
    assert result_of(folder).environment["git_commit"] == made.environment.get("SWEEPBENCH_GIT_COMMIT")


def test_a_change_of_the_code_is_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = extra(tmp_path / "extra")
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(folder))
    before = build().folder
    (folder / "workloads" / "mine.py").write_text("# changed\n")
    assert build().folder != before and before.exists()


def test_a_head_that_was_started_with_folders_of_its_own_does_not_lend_them() -> None:
    assert build().environment["SWEEPBENCH_EXTRA"] == ""


def test_pools_that_start_at_once_make_one_package() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: build(), range(8)))
    assert len({code_package.folder for code_package in made}) == 1
    assert [path.name for path in made[0].folder.parent.iterdir()] == [made[0].folder.name]


def test_data_among_the_code_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = extra(tmp_path / "extra")
    (folder / "workloads" / "rows.csv").write_bytes(b"0" * 2000)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(folder))
    monkeypatch.setattr(code_package, "_LIMIT", 1000)
    with pytest.raises(PackageError, match=r"its largest file is .*: keep data out|move data out"):
        build()
