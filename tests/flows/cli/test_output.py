"""Where a command is to write and cannot, it says so of the option, with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.config.errors import ConfigError
from flows.cli.ab_comment import check_comment_file
from flows.cli.commands import app
from flows.cli.output import check_file, written_to

UNWRITABLE = "/proc/x"  # for root as well
RIGHT = "name a file where you may write"


def test_a_file_that_can_be_written_is_not_there_yet(tmp_path: Path) -> None:
    check_file("--out", tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "{path}: is a folder; name a file"),
        ("no/such", "{path}: there is no folder {root}/no; make it, or name another file"),
        ("file/x", "{path}: cannot be written ({root}/file is no folder); " + RIGHT),
        (UNWRITABLE, "/proc/x: cannot be written (No such file or directory); " + RIGHT),
    ],
)
def test_a_file_that_could_not_be_written_later_is_an_error_now(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / name
    with pytest.raises(ConfigError) as raised:
        check_comment_file(str(path))
    assert str(raised.value) == "--markdown: " + said.format(path=path, root=tmp_path)


def test_another_error_in_the_block_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written_to("--to", tmp_path):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["schema", "suite", "--out", UNWRITABLE], f"--out: /proc/x: cannot be written (No such file or directory); {RIGHT}"),
        (["schema", "suite", "--out", "{root}"], "--out: {root}: is a folder; name a file"),
        (["schema", "suite", "--out", "{root}/file/x"], f"--out: {{root}}/file/x: cannot be written ({{root}}/file is no folder); {RIGHT}"),
        (
            ["new", "workload", "mine", "--to", UNWRITABLE],
            "--to: /proc/x: cannot be written (No such file or directory); name a folder where you may write",
        ),
        (
            ["new", "suite", "mine", "--workload", "synthetic", "--to", "{root}/file/x"],
            "--to: {root}/file/x: cannot be written ({root}/file is no folder); name a folder where you may write",
        ),
        (["publish", "--check", "{root}/file"], "{root}/file/manifest.json does not exist: {root}/file was not written by `sweep publish`"),
    ],
)
def test_each_command_says_which_option_and_why(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, [argument.format(root=tmp_path) for argument in arguments], env={"COLUMNS": "400"})
    assert (done.exit_code, done.output) == (1, f"error: {said.format(root=tmp_path)}\n")
