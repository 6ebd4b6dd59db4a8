"""Where trials keep what later ones use again: nowhere unless told, and for the owner alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cluster import kept_files
from cluster.kept_files import kept_folder, make_private


@pytest.fixture(autouse=True)
def _told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SWEEPBENCH_KEPT", "SWEEPBENCH_POOL", "SWEEPBENCH_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_a_trial_started_by_hand_keeps_nothing() -> None:
    assert kept_folder(".weights") is None


def test_what_the_launcher_says_comes_before_the_folder_of_a_jobs_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_POOL", "a100")
    assert kept_folder(".weights") == Path.home() / ".cache" / "sweepbench" / ".weights"
    monkeypatch.setenv("SWEEPBENCH_CACHE", str(tmp_path / "node"))
    assert kept_folder(".weights") == tmp_path / "node" / ".weights"
    monkeypatch.setenv("SWEEPBENCH_KEPT", str(tmp_path / "runs"))
    assert kept_folder(".weights") == tmp_path / "runs" / ".weights"
    assert not list(tmp_path.iterdir()), "it is made by the first that keeps something"


def test_the_folder_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    monkeypatch.setenv("SWEEPBENCH_KEPT", str(tmp_path / "a"))
    assert kept_folder("b") == folder and stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("what", ["another user's", "a link", "a file"])
def test_what_others_may_have_put_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    folder = tmp_path / "kept"
    if what == "a link":
        (tmp_path / "other").mkdir()
        folder.symlink_to(tmp_path / "other")
    elif what == "a file":
        folder.touch()
    else:
        folder.mkdir()
        monkeypatch.setattr(kept_files.os, "getuid", lambda: folder.stat().st_uid + 1)
    monkeypatch.setenv("SWEEPBENCH_KEPT", str(tmp_path))
    with pytest.raises(PermissionError, match="no folder of this user's own"):
        kept_folder("kept")
