"""`sweep export`: what it writes, what it says, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.config.paths import runs_root
from flows.cli.commands import app
from flows.cli.export import FORMATS
from tasks.export.write import Format
from tests.tasks.fake_sweep import Fake, make_sweep


@pytest.fixture
def sweep() -> Path:
    return make_sweep(runs_root(), [Fake({"pool": "cpu", "dataloader_workers": count}) for count in (0, 1)])


def test_the_files_are_named(sweep: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", "last", "--format", "csv", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == [str(tmp_path / "out" / name) for name in ("cells.csv", "trials.csv", "steps.csv")]


def test_a_sweep_is_named_by_its_folder_too(sweep: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(sweep), "--format", "pytorch-hud", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0 and (tmp_path / "out" / "benchmark_results.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("last --format xml --out out", "--format: xml: is no format; one of csv, parquet, hf, pytorch-hud"),
        ("nothing --format csv --out out", "'nothing' is not a sweep id"),
        ("last --format csv", "--out"),
        ("last --out out", "--format"),
    ],
)
def test_what_cannot_be_is_said(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["export", *words.split()])
    assert done.exit_code != 0 and said in " ".join(done.output.split()) and not (tmp_path / "out").exists()


def test_the_formats_that_a_shell_completes_are_those_there_are() -> None:
    assert list(FORMATS) == list(Format)
