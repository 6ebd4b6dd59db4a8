"""The hash of the code: what counts, and that it does not depend on where the code lies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.launchers.code_package import build
from cluster.source_tree import hash_of, source_files, source_tree

ROOT = Path(__file__).resolve().parents[2]


def checkout(folder: Path) -> Path:
    files = {
        "cluster/a.py": "a = 1\n",
        "experiments/suites/s.yaml": "suite: s\n",
        "experiments/t.csv": "x\n1\n",
        "tasks/b.py": "",
        "README.md": "",
    }
    for name, text in {**files, "cluster/stack/c.py": "", "cluster/__pycache__/a.cpython-311.pyc": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_only_what_a_trial_may_import_or_read_counts(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    told = "no suite: a trial knows what it was given of it"
    assert list(source_files(folder)) == ["cluster/a.py", "experiments/t.csv"], told
    mine = folder / "experiments" / "workloads" / "suites"
    mine.mkdir(parents=True)
    (mine / "x.py").write_text("")
    assert "experiments/workloads/suites/x.py" in source_files(folder), "a folder of that name elsewhere"


def test_equal_code_has_an_equal_hash_wherever_it_lies(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "one"), checkout(tmp_path / "deep" / "two")
    (two / "tasks" / "b.py").write_text("of the flow side\n")
    found = hash_of(source_files(one))
    assert hash_of(source_files(two)) == found and len(found) == 16
    assert hash_of(dict(reversed(source_files(one).items()))) == found
    (two / "cluster" / "a.py").write_text("a = 2\n")
    assert hash_of(source_files(two)) != found


@pytest.mark.parametrize("change", ["rename", "split", "add"])
def test_names_and_borders_of_files_count(tmp_path: Path, change: str) -> None:
    folder = checkout(tmp_path)
    before = hash_of(source_files(folder))
    if change == "rename":
        (folder / "cluster" / "a.py").rename(folder / "cluster" / "b.py")
    elif change == "split":
        (folder / "cluster" / "a.py").write_text("a =")
        (folder / "cluster" / "a2.py").write_text(" 1\n")
    else:
        (folder / "experiments" / "empty.py").write_text("")
    assert hash_of(source_files(folder)) != before


def test_the_users_workloads_belong_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_tree()
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "mine.py").write_text("x = 1\n")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "mine.yaml").write_text("")
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    assert source_files()["extra/0/workloads/mine.py"].name == "mine.py" and "extra/0/suites/mine.yaml" not in source_files()
    assert source_tree() != before


def test_the_code_that_is_sent_to_a_cluster_has_the_hash_of_the_code_here(tmp_path: Path) -> None:
    package = build()
    copy = tmp_path / "node"
    shutil.copytree(package.folder, copy)
    environment = {**os.environ, **package.environment, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cluster.source_tree"], cwd=copy, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == source_tree() == package.folder.name
