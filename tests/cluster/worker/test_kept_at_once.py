"""Two searches of one cell at the same time, as of two sweeps: what each of them found is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from cluster.kept_files import KEPT
from cluster.worker import kept_sizes, max_batch
from cluster.worker.kept_sizes import SIZES, KeptSizes, keep_sizes, read_sizes
from tests.cluster.worker.probe_support import Here, Pretended, found_on
from tests.cluster.worker.test_kept_sizes import Shrunk

ABOUT = {"device_name": "NVIDIA H200", "code": "c0de"}
Answers = dict[int, tuple[bool, float | None]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KEPT, str(tmp_path))
    return tmp_path / SIZES


def of(answers: Answers, about: dict[str, str] | None = None) -> KeptSizes:
    return KeptSizes(about={**ABOUT, **(about or {})}, answers=answers)


def keep(answers: Answers, about: dict[str, str] | None = None, *, over: bool = False, refuted: Answers | None = None) -> list[str]:
    said: list[str] = []
    keep_sizes("cell", of(answers, about), said.append, over=over, refuted=of(refuted) if refuted else None)
    return said


def kept() -> Answers:
    [found] = read_sizes("cell", pytest.fail)
    return found.answers


def test_what_two_searches_find_by_turns_is_all_kept() -> None:
    assert keep({1: (True, 0.11)}) == keep({1: (True, 0.12), 8: (True, 0.18)}) == []
    keep({1: (True, 0.11), 87: (True, 0.97)})
    keep({1: (True, 0.12), 8: (True, 0.18), 88: (False, None)})
    assert kept() == {1: (True, 0.11), 8: (True, 0.18), 87: (True, 0.97), 88: (False, None)}


def test_of_a_size_that_both_tried_the_answer_of_the_search_that_is_over_counts() -> None:
    """What it tried next follows from its answers: beside others the kept sizes would look like a search that was cut off."""
    keep({1: (True, 0.11)})
    keep({1: (True, 0.12), 87: (True, 0.97)}, over=True)
    keep({1: (True, 0.11), 8: (True, 0.18), 87: (False, None)})
    assert kept() == {1: (True, 0.12), 8: (True, 0.18), 87: (True, 0.97)}


@pytest.mark.parametrize("about", [{"device_name": "NVIDIA H100"}, {"code": "other"}])
def test_what_is_found_on_two_devices_or_with_two_codes_at_once_is_kept_of_each(about: dict[str, str]) -> None:
    keep({1: (True, 0.11), 87: (True, 0.97)})
    keep({1: (True, 0.2)}, about)
    keep({1: (True, 0.11), 88: (False, None)})
    keep({1: (True, 0.2), 43: (True, 0.97)}, about, refuted={1: (True, 0.11), 87: (True, 0.97)})
    both = {1: (True, 0.11), 87: (True, 0.97), 88: (False, None)}
    assert read_sizes("cell", pytest.fail) == [of(both), of({1: (True, 0.2), 43: (True, 0.97)}, about)]


def test_of_many_devices_those_that_were_searched_last_are_kept() -> None:
    for number in [0, *range(1, 8), 0, 8]:
        keep({1: (True, 0.11)}, {"device_name": str(number)})
    assert [one.about["device_name"] for one in read_sizes("cell", pytest.fail)] == ["2", "3", "4", "5", "6", "7", "0", "8"]


def test_what_does_not_hold_any_more_leaves_and_what_was_found_since_stays() -> None:
    earlier: Answers = {1: (True, 0.11), 80: (True, 0.9), 87: (True, 0.97)}
    keep({**earlier, 43: (True, 0.96)})  # 43: of another search, since
    keep({87: (False, None)}, refuted=earlier)
    assert kept() == {43: (True, 0.96), 87: (False, None)}


def test_that_another_devices_answers_do_not_hold_here_removes_none_of_this_one() -> None:
    """Both have the same answers for some sizes."""
    answers: Answers = {1: (True, 0.11), 87: (True, 0.97)}
    keep(answers)
    refuted = of(answers, {"device_name": "another"})
    keep_sizes("cell", of({88: (False, None)}), pytest.fail, refuted=refuted)
    assert kept() == {**answers, 88: (False, None)}


def test_the_edge_of_answers_that_contradict_each_other_is_above_the_largest_that_fits() -> None:
    """Beside another process on the device less fits."""
    both = of({43: (False, None), 87: (True, 0.97), 88: (False, None), 140: (False, None)})
    assert (both.largest, both.too_large) == (87, 88)
    assert of({43: (False, None), 87: (True, 0.97)}).too_large is None


def test_nobody_else_keeps_anything_between_reading_and_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    def locked(name: str) -> Callable[..., Any]:
        real = getattr(kept_sizes, name)

        def call(*arguments: Any) -> Any:
            with pytest.raises(Timeout):
                FileLock(folder / "cell.lock").acquire(timeout=0)
            held.append(name)
            return real(*arguments)

        return call

    for name in ("read_model", "atomic_write"):
        monkeypatch.setattr(kept_sizes, name, locked(name))
    assert keep({1: (True, 0.11)}) == [] and held == ["read_model", "atomic_write"]


def test_that_another_one_holds_the_lock_for_long_is_told_and_what_is_kept_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep({1: (True, 0.11)})
    monkeypatch.setattr(kept_sizes, "_WAIT_S", 0.0)
    with FileLock(folder / "cell.lock"):
        [said] = keep({8: (True, 0.18)})
    assert said.startswith("batch_size max: what was found cannot be kept: ") and "cell.lock" in said
    assert kept() == {1: (True, 0.11)}


def test_a_later_trial_tries_the_largest_size_of_two_searches_and_no_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second search keeps its answers while the first one's processes run."""

    class Beside(Here):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            for path in folder.glob("*.json"):
                [first] = read_sizes(path.stem, pytest.fail)
                keep_sizes(path.stem, first.model_copy(update={"answers": {1: (True, 0.3), 60: (True, 0.7)}}), pytest.fail)

    with monkeypatch.context() as patched:
        patched.setattr("tests.cluster.worker.probe_support.Here", Beside)
        found, _ = found_on(tmp_path / "first", patched, Pretended)
    [file] = folder.glob("*.json")
    [both] = read_sizes(file.stem, pytest.fail)
    assert found.size == 87 and both.answers[60] == (True, 0.7)
    repeat, notes = found_on(tmp_path / "repeat", monkeypatch, Pretended)
    assert repeat.size == 87 and notes == ["batch size 87 fits with 97.0% of the device's memory"]


def test_of_a_searchs_answers_the_last_alone_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(max_batch, "keep_sizes", lambda *_, over, **__: told.append(over))
    found_on(tmp_path / "first", monkeypatch, Pretended)
    assert told == [*[False] * (len(told) - 1), True] and len(told) > 2


def test_of_what_does_not_hold_any_more_no_size_is_left_that_a_later_trial_would_try(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 was of another search, or of one that went on: the search anew does not come to it, and it would be the largest that fits."""
    found_on(tmp_path / "first", monkeypatch, Pretended)
    [file] = folder.glob("*.json")
    [first] = read_sizes(file.stem, pytest.fail)
    keep_sizes(file.stem, first.model_copy(update={"answers": {60: (True, 0.7)}}), pytest.fail)
    found, _ = found_on(tmp_path / "anew", monkeypatch, Shrunk)
    again, notes = found_on(tmp_path / "again", monkeypatch, Shrunk)
    assert found.size == again.size == 43 and len(notes) == 1 and notes[0].startswith("batch size 43 fits")
