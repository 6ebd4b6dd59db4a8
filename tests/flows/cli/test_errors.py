"""What a command says of an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.config.errors import ConfigError
from flows.cli.commands import app
from flows.cli.errors import line_of
from flows.cli.options import suite_names, sweep_ids
from flows.runtime.command_environment import prepare_environment


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def raised(by: object) -> Exception:
    try:
        by()  # type: ignore[operator]
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def test_a_users_error_says_it_all(runs: Path) -> None:
    assert line_of(ConfigError.one("s.yaml", 3, "axes", "is empty", "give one")) == "s.yaml:3: axes: is empty; give one"
    assert not runs.exists()


def test_files_are_named_with_what_would_be_right(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "file").touch()
    for path, hint in (
        (tmp_path, "Is a directory; a folder is where a file should be: move it away"),
        (tmp_path / "file" / "x", "Not a directory; a file is where a folder should be: move it away"),
        (tmp_path / "none", "No such file or directory; it was removed, was never written, or could not be made"),
    ):
        assert line_of(raised(path.read_text)) == f"{path}: {hint}"
    assert not runs.exists()


def test_the_traceback_of_anything_else_is_kept_in_a_file(runs: Path) -> None:
    line = line_of(raised(lambda: {}["lost\nkey"]))
    (kept,) = (runs / "errors").iterdir()
    assert line == f"KeyError: 'lost\\nkey'; this is unexpected: its traceback is in {kept}"
    assert "Traceback (most recent call last)" in kept.read_text() and "in raised" in kept.read_text()


def test_a_folder_of_runs_that_is_a_file_does_not_hide_the_error(runs: Path) -> None:
    runs.write_text("")
    said = f"SWEEPBENCH_RUNS: {runs} is a file; move it away, or name a folder: it is made if need be"
    assert line_of(ValueError("odd")) == f"ValueError: odd; this is unexpected: its traceback could not be kept ({said})"


@pytest.mark.parametrize(
    "words", ["list", "show last", "nights", "spread", "plan synthetic", "run synthetic --profile smoke", "resume last", "nightly --plan"]
)
def test_a_folder_of_runs_that_is_a_file_is_an_error_of_every_command(runs: Path, words: str) -> None:
    runs.write_text("")
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "300"})
    said = f"error: SWEEPBENCH_RUNS: {runs} is a file; move it away, or name a folder: it is made if need be"
    assert (done.exit_code, done.output.split()) == (1, said.split())


def test_nor_does_it_break_a_completion(runs: Path) -> None:
    runs.write_text("")
    assert sweep_ids() == [] and "synthetic" in suite_names()


@pytest.mark.parametrize("port", ["abc", "80", "70000"])
def test_a_port_that_is_none_is_named(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_MLFLOW_PORT", port)
    monkeypatch.setattr("flows.cli.ui.prepare_environment", prepare_environment)  # the real one, whichever test imported it first
    done = CliRunner().invoke(app, ["ui"], env={"COLUMNS": "200"})
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert f"error: SWEEPBENCH_MLFLOW_PORT='{port}' is not a port: give a number from 1024 to 65535" in " ".join(done.output.split())
