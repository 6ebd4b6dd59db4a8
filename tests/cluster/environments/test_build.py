"""Environments are built over this Python from a package of the test's own, without a network: once, whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from cluster.environments import build as module
from cluster.environments.build import COMPLETE, build, find, folder_of, python_of
from cluster.environments.recipe import Recipe, recipe
from cluster.packages import installed
from experiments.config.errors import ConfigError

pytestmark = pytest.mark.timeout(240)


def wheel(folder: Path, version: str, name: str = "tiny_of_a_test") -> None:
    """A package of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        checksum = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={checksum},{len(text)}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of environments beside two versions of a package."""
    folder = tmp_path / "extra" / "environments"
    for version in ("1.0", "2.0"):
        wheel(folder / "wheels", version)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(folder.parent))
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(module, "_CHECK", "import yaml, tiny_of_a_test")  # what a trial imports takes seconds
    return folder


def made_from(environments: Path, text: str, name: str = "tiny") -> Recipe:
    (environments / f"{name}.txt").write_text(f"--no-index\n--find-links wheels\n{text}\n")
    return recipe(name)


def test_it_has_what_its_file_names_and_all_else_of_this_python(environments: Path) -> None:
    said: list[str] = []
    wanted = made_from(environments, "tiny_of_a_test==2.0")
    assert find(wanted.digest) is None
    made = build(wanted, said.append)
    assert made.own == {"tiny-of-a-test": "2.0"}
    assert made.packages == {**installed(), "tiny-of-a-test": "2.0"}
    done = subprocess.run([made.python, "-c", "import tiny_of_a_test as t; print(t.VERSION)"], capture_output=True, text=True, check=True)
    assert (done.stdout, made.python) == ("2.0\n", str(python_of(wanted.digest)))
    assert len(said) == 2 and "building it from" in said[0] and said[1].endswith("tiny-of-a-test 2.0")
    assert find(wanted.digest) == made
    assert build(wanted, pytest.fail) == made


def test_what_a_killed_build_left_is_built_anew_and_two_build_once(environments: Path) -> None:
    wanted = made_from(environments, "tiny_of_a_test==1.0")
    (folder_of(wanted.digest) / "lib").mkdir(parents=True)
    (folder_of(wanted.digest) / "lib" / "half").touch()
    assert find(wanted.digest) is None
    said: list[str] = []
    threads = [threading.Thread(target=build, args=(wanted, said.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not (folder_of(wanted.digest) / "lib" / "half").exists()
    assert [text.split(": ")[1].split(" ")[0] for text in said if "another process" not in text] == ["building", "built"]
    (folder_of(wanted.digest) / COMPLETE).write_text("{}")
    assert find(wanted.digest) is None


def test_what_pip_refuses_is_told_with_file_and_line_and_leaves_nothing(environments: Path) -> None:
    wanted = made_from(environments, "tiny_of_a_test==1.0\nnot_there_of_a_test==3.0  # why")
    with pytest.raises(ConfigError) as caught:
        build(wanted)
    error = caught.value
    assert (error.file, error.line, error.key) == (str(wanted.file), 4, "not_there_of_a_test==3.0")
    assert error.problem == "pip cannot install it" and "No matching distribution found for not_there_of_a_test==3.0" in error.hint
    assert not folder_of(wanted.digest).exists()


def test_an_environment_in_which_no_trial_can_start_is_refused(environments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK", "import not_there_of_a_test")
    wanted = made_from(environments, "tiny_of_a_test==1.0")
    with pytest.raises(ConfigError, match=r"a trial cannot start in it; ModuleNotFoundError: No module named 'not_there_of_a_test'"):
        build(wanted)
    assert not folder_of(wanted.digest).exists()


def test_one_that_stands_alone_sees_nothing_of_this_python(environments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK", "import tiny_of_a_test")
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    (environments / "alone.txt").write_text("# base: none\n--no-index\n--find-links wheels\ntiny_of_a_test==1.0\n")
    made = build(recipe("alone"))
    assert made.packages == made.own == {"tiny-of-a-test": "1.0"}
    assert json.loads((folder_of(made.digest) / COMPLETE).read_text())["name"] == "alone"


def test_of_a_long_list_of_versions_the_newest_are_told() -> None:
    versions = ", ".join(f"1.{number}" for number in range(300))
    said = module._why(
        f"noise\nERROR: Could not find tiny==9 (from versions: {versions})\nERROR: No matching distribution found for tiny==9\n"
    )
    assert said == (
        "ERROR: Could not find tiny==9 (from versions: ..., 1.295, 1.296, 1.297, 1.298, 1.299) / "
        "ERROR: No matching distribution found for tiny==9"
    )
