"""Which files and libraries a trial's key depends on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.pools.pool import Pool
from tasks.sweep import trial_key
from tasks.sweep.trial_key import code_version, git_state, libraries_version

POOL = {"name": "p", "device": "cpu"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of its own, with a workload `mine` and one beside it."""
    for name in (
        "experiments/workloads/mine.py",
        "experiments/workloads/base.py",
        "experiments/workloads/other.py",
        "experiments/workloads/_shared.py",
        "experiments/workloads/layers/attention.py",
        "cluster/worker/measure/loop.py",
        "cluster/devices/cpu.py",
        "cluster/devices/cuda.py",
        "cluster/devices/_cpu_tools.py",
        "cluster/devices/_cuda_tools.py",
        "extra/workloads/theirs.py",
        "extra/workloads/_helper.py",
        "tasks/report/markdown.py",
    ):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    folder = tmp_path / "root"

    def load(name: str) -> Any:
        inside = folder / "experiments" / "workloads" / f"{name}.py"
        builds_on = {"BUILDS_ON": ("base",)} if name == "mine" else {}
        return SimpleNamespace(__file__=str(inside if inside.exists() else folder / "extra" / "workloads" / f"{name}.py"), **builds_on)

    monkeypatch.setattr(trial_key, "ROOT", folder)
    monkeypatch.setattr(trial_key, "workloads", SimpleNamespace(load=load))
    monkeypatch.setattr(trial_key, "importlib", SimpleNamespace(import_module=load))
    code_version.cache_clear()
    yield folder
    code_version.cache_clear()


def version(workload: str = "mine", device: str = "cpu") -> str:
    code_version.cache_clear()
    return code_version(workload, device)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("experiments/workloads/mine.py", True),
        ("experiments/workloads/base.py", True),  # of which it takes parts
        ("experiments/workloads/other.py", False),
        ("experiments/workloads/_shared.py", True),
        ("experiments/workloads/layers/attention.py", True),
        ("cluster/worker/measure/loop.py", True),
        ("cluster/devices/cpu.py", True),
        ("cluster/devices/cuda.py", False),
        ("cluster/devices/_cpu_tools.py", True),
        ("cluster/devices/_cuda_tools.py", False),
        ("extra/workloads/_helper.py", False),
        ("tasks/report/markdown.py", False),
    ],
)
def test_the_code_of_a_trial_is_what_runs_it_and_nothing_else(root: Path, name: str, counts: bool) -> None:
    before = version()
    (root / name).write_text("changed")
    assert (version() != before) == counts


@pytest.mark.parametrize("name", ["extra/workloads/theirs.py", "extra/workloads/_helper.py", "experiments/workloads/_shared.py"])
def test_a_workload_from_elsewhere_counts_with_what_is_shared_there(root: Path, name: str) -> None:
    before = version("theirs")
    (root / name).write_text("changed")
    assert version("theirs") != before


@pytest.mark.parametrize("name", ["experiments/workloads/_new.py", "experiments/workloads/layers/new.py", "cluster/worker/new.py"])
def test_a_new_file_among_them_counts(root: Path, name: str) -> None:
    before = version()
    (root / name).write_text("")
    assert version() != before


def test_files_are_told_apart_by_name(root: Path) -> None:
    before = version()
    loop, shared = root / "cluster/worker/measure/loop.py", root / "experiments/workloads/_shared.py"
    one, two = loop.read_text(), shared.read_text()
    loop.write_text(two)
    shared.write_text(one)
    assert version() != before


def test_the_device_is_part_of_the_code(root: Path) -> None:
    assert version("mine", "cpu") != version("mine", "cuda")


# --- libraries


def test_an_embedded_pool_has_the_libraries_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, versions = Pool(**POOL, address="embedded"), {"torch": "1"}
    monkeypatch.setattr(trial_key, "_version", versions.get)
    before = libraries_version(pool)
    assert libraries_version(pool.model_copy(update={"image": "an image"})) == before
    versions["transformers"] = "2"
    assert libraries_version(pool) != before
    before = libraries_version(pool)
    monkeypatch.setattr(trial_key.platform, "python_version", lambda: "3.99.0")
    assert libraries_version(pool) != before


@pytest.mark.parametrize("fields", [{"address": "http://head:8265"}, {"address": "embedded", "python": "/other/python"}, {}])
def test_another_python_or_image_has_what_the_pool_declares(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    pool = Pool(**POOL, **fields)
    before = libraries_version(pool)
    monkeypatch.setattr(trial_key, "_version", lambda name: "another")
    assert libraries_version(pool) == before
    assert libraries_version(pool.model_copy(update={"image": "an image"})) != before
    assert libraries_version(pool.model_copy(update={"python": "/another"})) != before


@pytest.mark.parametrize("name", ["torch", "transformers", "diffusers", "ray", "numpy", "pillow", "tokenizers", "pyarrow", "torchao"])
def test_each_library_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pool = Pool(**POOL, address="embedded")
    monkeypatch.setattr(trial_key, "_version", lambda asked: "1")
    before = libraries_version(pool)
    monkeypatch.setattr(trial_key, "_version", lambda asked: "2" if asked == name else "1")
    assert libraries_version(pool) != before


def test_the_version_of_a_library_is_its_installed_one_or_none() -> None:
    assert trial_key._version("pytest") == pytest.__version__
    assert trial_key._version("no-such-library") is None


# --- git


@pytest.mark.parametrize(("status", "dirty"), [("", False), (" M tasks/sweep/plan.py", True)])
def test_the_commit_and_whether_anything_was_changed(monkeypatch: pytest.MonkeyPatch, status: str, dirty: bool) -> None:
    git_state.cache_clear()
    monkeypatch.setattr(trial_key, "_git", lambda *arguments: {"rev-parse": "abc", "status": status}[arguments[0]])
    assert git_state() == {"commit": "abc", "dirty": dirty}
    git_state.cache_clear()


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")])
def test_outside_a_checkout_there_is_no_commit(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: str) -> str:
        raise error

    git_state.cache_clear()
    monkeypatch.setattr(trial_key, "_git", fail)
    assert git_state() == {}
    git_state.cache_clear()
