"""What an environment is made from: which files are refused, with the line, and what makes it another one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cluster.environments import recipe as module
from cluster.environments.recipe import recipe
from experiments.config.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of environments of a $SWEEPBENCH_EXTRA, over a Python with one package."""
    path = tmp_path / "extra" / "environments"
    path.mkdir(parents=True)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(path.parent))
    monkeypatch.setattr(module, "_base", lambda python: {"python": "3.11.1", "packages": {"tiny": "1.0"}})
    return path


def test_a_name_that_is_no_file_is_refused_with_the_nearest(folder: Path) -> None:
    (folder / "torch-2.12.txt").write_text("torch==2.12.0\n")
    with pytest.raises(ConfigError, match=r"environment: torch-2\.11: unknown environment; did you mean 'torch-2\.12'\?"):
        recipe("torch-2.11")


def test_lines_that_pin_no_version_are_all_named(folder: Path) -> None:
    file = folder / "loose.txt"
    file.write_text(
        "# a comment\ntiny\nother>=2  # and why\nthird==1.*\n-e ./here\ngood==1.0 \\\n  --hash=sha256:00\nbad name\nurl @ https://x/y.whl\n"
    )
    with pytest.raises(ConfigError) as caught:
        recipe("loose")
    problems = [(problem.line, problem.key, problem.problem.split(":")[0]) for problem in caught.value.problems]
    assert problems == [
        (2, "tiny", "is not pinned"),
        (3, "other>=2", "is not pinned"),
        (4, "third==1.*", "is not pinned"),
        (5, "-e ./here", "is a folder, not a version"),
        (8, "bad name", "is no requirement"),
    ]
    assert {problem.file for problem in caught.value.problems} == {str(file)}
    assert caught.value.hint == "write tiny==<version>"


@pytest.mark.parametrize("text", ["", "# base: none\n", "\n  # nothing\n"])
def test_a_file_without_packages_is_refused(folder: Path, text: str) -> None:
    (folder / "empty.txt").write_text(text)
    with pytest.raises(ConfigError, match="names no package"):
        recipe("empty")


def test_an_included_file_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "a.txt").write_text("-r nowhere.txt\n")
    with pytest.raises(ConfigError, match=r"a\.txt: .*nowhere\.txt: cannot be read"):
        recipe("a")


def test_the_digest_is_of_what_would_be_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, included, wheels = folder / "a.txt", folder / "more.lock", folder / "wheels"
    wheels.mkdir()
    included.write_text("other==1.0\n")
    file.write_text("-r more.lock\n--find-links wheels\ntiny==2.0\n")
    before = recipe("a")
    assert (before.name, before.file, before.python, before.alone) == ("a", file, sys.executable, False)
    file.write_text("# why\n-r more.lock\n--find-links wheels\n\ntiny==2.0  # because\n")
    assert recipe("a").digest == before.digest, "comments install nothing"
    seen = [before.digest]
    file.write_text("-r more.lock\n--find-links wheels\ntiny==2.1\n")
    seen.append(recipe("a").digest)
    included.write_text("other==1.1\n")
    seen.append(recipe("a").digest)
    (wheels / "tiny-2.1-py3-none-any.whl").write_bytes(b"1")
    seen.append(recipe("a").digest)
    (wheels / "tiny-2.1-py3-none-any.whl").write_bytes(b"2")
    seen.append(recipe("a").digest)
    seen.append(recipe("a", "/another/python").digest)
    monkeypatch.setattr(module, "_base", lambda python: {"python": "3.11.1", "packages": {"tiny": "1.1"}})
    seen.append(recipe("a").digest)
    assert len(set(seen)) == 7


def test_a_file_that_names_everything_does_not_depend_on_the_packages_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "whole.txt").write_text("# base: none\ntiny==1.0\n")
    before = recipe("whole")
    monkeypatch.setattr(module, "_base", lambda python: {"python": "3.11.1", "packages": {"tiny": "9"}})
    assert before.alone and recipe("whole").digest == before.digest
    monkeypatch.setattr(module, "_base", lambda python: {"python": "3.11.2", "packages": {}})
    assert recipe("whole").digest != before.digest


def test_a_python_that_cannot_be_asked_is_named() -> None:
    with pytest.raises(ConfigError, match="/no/python: does not tell its packages"):
        module._base("/no/python")
