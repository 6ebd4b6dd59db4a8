"""The axes `environment` and `commit`: they are no parameters of a workload, and cells know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from experiments.environment_files import environment_files
from experiments.spec.matrix import expand
from tests.experiments.spec.suite_helpers import Workshop, workshop

__all__ = ["workshop"]

HEAD = "suite: toys\nworkload: toy\n"


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workshop: Workshop) -> Path:
    """A folder with the environments `new` and `old`, beside the workshop's own files."""
    folder = tmp_path / "more" / "environments"
    folder.mkdir(parents=True)
    for name in ("old", "new"):
        (folder / f"{name}.txt").write_text(f"tiny=={len(name)}.0\n")
    monkeypatch.setenv("SWEEPBENCH_EXTRA", ":".join(filter(None, [str(extra) for extra in _extras()] + [str(folder.parent)])))
    return folder


def _extras() -> list[Path]:
    from experiments.config.paths import extra_folders

    return extra_folders()


def test_cells_know_their_environment_and_commit(workshop: Workshop, environments: Path) -> None:
    text = HEAD + "axes: {pool: [cpu], environment: [default, new], commit: [main, worktree]}\nconditions:\n"
    suite = workshop.load(
        text + "  - {when: {environment: new, commit: main}, set: {steps: 77}}\nexclude: [{environment: default, commit: main}]\n"
    )
    cells = expand(suite)
    assert [(cell.environment, cell.commit, cell.parameters["steps"] == 77) for cell in cells] == [
        ("default", "worktree", False),
        ("new", "main", True),
        ("new", "worktree", False),
    ]
    assert cells[1].axes == {"pool": "cpu", "environment": "new", "commit": "main"}
    assert not {"environment", "commit"} & set(cells[1].parameters)


def test_cells_that_do_not_name_them_have_the_plain_ones(workshop: Workshop, environments: Path) -> None:
    assert [(cell.environment, cell.commit) for cell in expand(workshop.load(HEAD + "axes: {pool: [cpu]}\n"))] == [("default", "worktree")]
    suite = workshop.load(HEAD + "axes: {pool: [cpu]}\ninclude: [{environment: new}]\n")
    assert [cell.axes for cell in expand(suite)] == [{"pool": "cpu", "environment": "default"}, {"pool": "cpu", "environment": "new"}]


def test_set_and_only_take_them_and_a_hash_stays_text(workshop: Workshop, environments: Path) -> None:
    suite = workshop.load(HEAD + "axes: {pool: [cpu], environment: [default, new]}\n", sets={"environment": "old", "commit": "1234567"})
    assert [(cell.environment, cell.commit) for cell in expand(suite)] == [("old", "1234567")]
    suite = workshop.load(HEAD + "axes: {pool: [cpu], commit: [main, '1234567']}\n", only={"commit": ["1234567"]})
    assert [cell.commit for cell in expand(suite)] == ["1234567"]


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        (
            "axes: {pool: [cpu], environment: [nwe]}",
            r"environment.*unknown environment 'nwe'; did you mean 'new'\? known: default, new, old",
        ),
        (
            "axes: {pool: [cpu], commit: [1234567]}",
            "commit.*is 1234567, which names no commit; write a branch, tag or hash as text, in quotes",
        ),
        ("axes: {pool: [cpu], commit: ['--all']}", "commit.*is '--all', which names no commit"),
        ("axes: {pool: [cpu]}\nfixed: {commit: main}", r"fixed\.commit: is an axis; write `axes: \{commit: \[main\]\}`"),
        ("axes: {pool: [cpu], commit: [main]}\nexclude: [{commit: mian}]", "'mian' is no value of the axis commit in any profile"),
        ("axes: {pool: [cpu], commit: [main, old]}\nsame_work: [commit]", "'commit' says with which code a cell runs, not what it does"),
        (
            "axes: {pool: [cpu]}\nconditions: [{when: {pool: cpu}, set: {environment: new}}]",
            "is an axis; a condition sets other parameters",
        ),
    ],
)
def test_what_is_wrong_is_told(workshop: Workshop, environments: Path, rest: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        workshop.load(f"{HEAD}{rest}\n")


def test_references_of_loss_parity_are_of_each_environment(workshop: Workshop, environments: Path) -> None:
    text = HEAD + "axes: {pool: [cpu], environment: [default, new], precision: [bf16, fp16]}\nparity_reference: true\n"
    added = [cell for cell in expand(workshop.load(text)) if cell.reference]
    assert [(cell.environment, cell.parameters["precision"]) for cell in added] == [("default", "fp32"), ("new", "fp32")]


def test_files_are_found_by_name(environments: Path) -> None:
    assert environment_files() == {"new": environments / "new.txt", "old": environments / "old.txt"}
    (environments / "default.txt").touch()
    with pytest.raises(ConfigError, match=r"default\.txt: `default` means the pool's own Python"):
        environment_files()
