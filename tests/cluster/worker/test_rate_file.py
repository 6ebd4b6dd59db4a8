"""Attainable rates that trials share: found again, of one device and setting alone, and measured anew where the file is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from filelock import FileLock

from cluster.worker import rate_file
from cluster.worker.rate_file import kept_rates
from experiments.trial import digest

ABOUT = {"device_name": "NVIDIA H200", "torch": "2.11.0", "locked_clocks_mhz": 1400, "power_limit_w": 700.0, "tf32": False}


def keep(folder: Path, **seconds: float) -> list[str]:
    said: list[str] = []
    with kept_rates(folder, ABOUT, said.append) as known:
        known.update(seconds)
    return said


def known(folder: Path | None, about: object = ABOUT) -> tuple[dict[str, float], list[str]]:
    said: list[str] = []
    with kept_rates(folder, about, said.append) as found:  # type: ignore[arg-type]
        return dict(found), said


def file_of(folder: Path) -> Path:
    return folder / f"{digest(ABOUT)}.json"


def test_what_one_trial_measured_the_next_knows(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert keep(folder, a=1e-3) == [] and keep(folder, b=2e-3) == []
    assert known(folder) == ({"a": 1e-3, "b": 2e-3}, [])
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("other", [{"locked_clocks_mhz": None}, {"torch": "2.12.0"}, {"device_name": "NVIDIA H100"}, {"tf32": True}])
def test_another_device_torch_or_clock_has_a_file_of_its_own(tmp_path: Path, other: dict[str, object]) -> None:
    keep(tmp_path, a=1e-3)
    assert known(tmp_path, {**ABOUT, **other}) == ({}, [])


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    keep(tmp_path)
    assert not file_of(tmp_path).exists()
    keep(tmp_path, a=1e-3)
    before = file_of(tmp_path).stat().st_ino
    keep(tmp_path)
    assert file_of(tmp_path).stat().st_ino == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace("0.001", "0.002"), "was changed after it was written: its seal does not hold"),
        (lambda text: text[: len(text) // 2], "is not JSON"),
        (lambda text: "", "is empty"),
        (lambda text: json.dumps({"about": ABOUT, "seconds": {"a": -1.0}}), "seconds.a"),
        (lambda text: json.dumps({"about": {**ABOUT, "torch": "1"}, "seconds": {"a": 1.0}}), "is of something else than its name says"),
    ],
)
def test_a_damaged_file_is_said_and_made_anew(tmp_path: Path, damage: object, said: str) -> None:
    keep(tmp_path, a=1e-3)
    path = file_of(tmp_path)
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    found, [line] = known(tmp_path)
    assert found == {} and line.startswith(f"attainable rates: {path}") and said in line and "measured anew" in line
    keep(tmp_path, a=3e-3)
    assert known(tmp_path) == ({"a": 3e-3}, [])


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    assert known(None) == ({}, [])


def test_a_folder_that_another_process_holds_or_that_is_no_folder_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_file, "_WAIT_S", 0.0)
    keep(tmp_path, a=1e-3)
    with FileLock(tmp_path / f"{digest(ABOUT)}.lock"):
        found, [line] = known(tmp_path)
    assert found == {} and line.startswith("attainable rates: nothing is kept (Timeout")
    assert known(tmp_path) == ({"a": 1e-3}, [])
    found, [line] = known(file_of(tmp_path))
    assert found == {} and "nothing is kept" in line


def test_a_file_that_cannot_be_written_costs_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rate_file, "atomic_write", full)
    assert keep(tmp_path, a=1e-3) == [f"attainable rates: {file_of(tmp_path)} cannot be written (No space left on device)"]
