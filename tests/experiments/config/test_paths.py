"""Where results are written, by default: in one place, whatever folder a command is given in."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.stack import settings
from experiments.config.errors import ConfigError
from experiments.config.paths import REPOSITORY, runs_root


def test_without_the_variable_every_part_writes_into_the_repositorys_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`sweep show` looked below the working directory for what `sweep run` had written into the clone."""
    monkeypatch.delenv("SWEEPBENCH_RUNS")
    monkeypatch.chdir(tmp_path)
    assert runs_root() == REPOSITORY / "runs" == settings.load().runs


def test_the_variable_may_be_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", "mine")
    monkeypatch.chdir(tmp_path)
    assert runs_root() == tmp_path / "mine" == settings.load().runs


def test_a_file_in_its_place_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for name in ("mine", "mine/runs", "mine/a/b"):
        monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / name))
        for read in (runs_root, settings.load):
            with pytest.raises(ConfigError, match=f"SWEEPBENCH_RUNS: {tmp_path}/mine is a file"):
                read()
