"""`sweep site` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.commands import app
from tasks.nightly.store import NightStore
from tests.tasks.site.site_support import NAME, day, save


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_the_site_is_written_and_its_index_named(runs: Path, tmp_path: Path) -> None:
    save(runs, 1)
    save(runs, 2)
    (NightStore(NAME, runs).folder(day(1)) / "night.json").write_text("{")
    done = CliRunner().invoke(app, ["site", "--out", str(tmp_path / "site")])
    assert done.exit_code == 0, done.output
    assert f"site: {tmp_path / 'site' / 'index.html'} (4 files)" in done.stdout
    assert "left out: " in done.stderr and "is not JSON" in done.stderr, "one damaged night does not keep the others from being published"


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--name", "mad-up"], 1, "--name: mad-up: has no nights here; did you mean 'made-up'"),
        (["--commit-url", "example.org"], 1, "--commit-url: example.org: is no address of a commit"),
        (["--nights", "0"], 2, "--nights"),
        (["--reports", "-1"], 2, "--reports"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_written(runs: Path, tmp_path: Path, options: list[str], status: int, said: str) -> None:
    save(runs, 1)
    done = CliRunner().invoke(app, ["site", "--out", str(tmp_path / "site"), *options])
    assert done.exit_code == status and said in done.output and not (tmp_path / "site").exists()


def test_a_folder_of_other_things_is_refused(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = CliRunner().invoke(app, ["site", "--out", str(tmp_path)])
    assert done.exit_code == 1 and "holds other things" in done.output and (tmp_path / "notes.txt").read_text() == "mine"
