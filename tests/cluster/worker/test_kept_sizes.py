"""What a search for the largest batch keeps for later trials of its cell, on a pretended device."""

from __future__ import annotations

import errno
import json
import os
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.journal.journal import read_journal
from cluster.kept_files import KEPT
from cluster.trial_layout import JOURNAL
from cluster.worker import max_batch
from cluster.worker.kept_sizes import SIZES, keep_sizes, read_sizes
from cluster.worker.max_batch import SearchResult, seconds_searched, tell_ranks
from tests.cluster.worker.probe_support import Here, LeavesPieces, Pretended, found_on


class Shrunk(Pretended):
    """A sample takes two hundredths of it."""

    def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
        if (used := 0.1 + 0.02 * len(batch["vectors"])) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory (shrunk)")
        self.peak = max(self.peak, used)
        return Cpu.place(self, batch, prepare, prefetch=prefetch)


class Other(Pretended):
    """Another device that holds as much."""

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "device_name": "another"}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the trials keep what they found; one has."""
    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    assert found_on(tmp_path / "first", monkeypatch, Pretended)[0].size == 87
    [file] = (tmp_path / "kept" / SIZES).glob("*.json")
    return file


def test_a_later_trial_of_the_cell_tries_the_size_that_the_first_one_found(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, notes = found_on(tmp_path, monkeypatch, Pretended)
    assert found == SearchResult(
        87, "batch_size max: 87 samples fit and 88 did not, as an earlier trial of this cell found; tried again: 87 fits"
    )
    assert notes == ["batch size 87 fits with 97.0% of the device's memory"]
    assert [command[-1] for command in Here.commands] == ["null"]


@pytest.mark.parametrize(
    ("device", "size", "why"), [(Shrunk, 43, "which does not fit now"), (Other, 87, "on another device or with other libraries")]
)
def test_where_it_does_not_hold_the_search_starts_anew(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: type[Pretended], size: int, why: str
) -> None:
    found, notes = found_on(tmp_path, monkeypatch, device)
    assert found.size == size and f"{size + 1} does not" in found.note
    assert f"batch_size max: an earlier trial of this cell found 87, {why}: the search starts anew" in notes
    again, _ = found_on(tmp_path / "again", monkeypatch, device)
    assert again.size == size and len(Here.commands) == 1, "what was found now is kept"


class Larger(Other):
    """Another device, of which a sample takes half as much."""

    def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
        if (used := 0.1 + 0.005 * len(batch["vectors"])) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory (larger)")
        self.peak = max(self.peak, used)
        return Cpu.place(self, batch, prepare, prefetch=prefetch)


@pytest.mark.parametrize("device", [Other, Larger])
def test_devices_that_search_one_cell_by_turns_keep_their_sizes_both(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: type[Pretended]
) -> None:
    """Each tries what the other found last, by which it learns on which device it is; that another holds more says nothing of this one."""
    size = found_on(tmp_path / "other", monkeypatch, device)[0].size
    for number, (turn, largest, other) in enumerate(
        [(Pretended, 87, size), (Pretended, 87, size), (device, size, size), (Pretended, 87, size)]
    ):
        found, notes = found_on(tmp_path / str(number), monkeypatch, turn)
        assert found.size == largest and "tried again: " in found.note
        tried = [note.split()[2] for note in notes if note.startswith("batch size ")]
        assert tried == list(dict.fromkeys([str(other), str(largest)])), notes
    assert f"batch_size max: an earlier trial of this cell found {size}, " in (told := notes[-1 if size == 87 else 1])
    assert told.endswith(": what one found here counts")


def test_with_the_code_of_before_its_sizes_are_still_there(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_on(tmp_path / "other", monkeypatch, Pretended, code="c0ded")
    _, notes = found_on(tmp_path / "again", monkeypatch, Pretended)
    assert notes == ["batch size 87 fits with 97.0% of the device's memory"]


def cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch, device: type[Pretended]) -> list[str]:
    """A search on a device that is cut off in its second process. Returns the sizes of which it has kept the answers."""

    class Cut(Here):
        def __init__(self, command: list[str]) -> None:
            if len(self.commands) == 1:
                raise KeyboardInterrupt
            super().__init__(command)

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched:
        patched.setattr("tests.cluster.worker.probe_support.Here", Cut)
        found_on(folder, patched, device)
    [file] = (Path(os.environ[KEPT]) / SIZES).glob("*.json")
    return list(json.loads(file.read_text())["kept"][-1]["answers"])


def test_a_search_that_was_cut_off_goes_on_after_the_processes_that_had_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun anew, two searches once cost a campaign on rented devices 28 minutes."""
    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    kept = cut_off(tmp_path / "cut", monkeypatch, LeavesPieces)
    assert kept[:2] == ["1", "8"]
    found, notes = found_on(tmp_path / "rest", monkeypatch, LeavesPieces)
    assert found.size == 87 and "88 does not" in found.note
    assert notes[0] == f"batch_size max: an earlier search had tried {', '.join(kept)} when it was cut off: this one goes on from there"
    assert not {*kept} & {note.split()[2] for note in notes if note.startswith("batch size ")}, "neither is tried again"
    again, _ = found_on(tmp_path / "again", monkeypatch, LeavesPieces)
    assert again.size == 87 and len(Here.commands) == 1, "now it is over"


def test_what_a_process_had_answered_when_the_search_was_cut_off_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flow cuts it off at any time, and one process may try all sizes. The size that it could not answer any more is tried again."""

    class Slow(Here):
        asked = 0

        def wait(self, timeout: float) -> int:
            Slow.asked += 1
            raise TimeoutError if Slow.asked == 1 else KeyboardInterrupt

        def terminate(self) -> None:
            assert list(json.loads(file().read_text())["kept"][-1]["answers"])[:2] == ["1", "8"], "first kept, then ended, which takes time"

    def file() -> Path:
        [found] = (Path(os.environ[KEPT]) / SIZES).glob("*.json")
        return found

    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched:
        patched.setattr("tests.cluster.worker.probe_support.Here", Slow)
        found_on(tmp_path / "cut", patched, Pretended)
    assert Slow.asked == 2 and len(Here.commands) == 1
    kept = json.loads(file().read_text())["kept"][-1]["answers"]
    found, notes = found_on(tmp_path / "rest", monkeypatch, Pretended)
    assert found.size == 87 and len(Here.commands) == 1
    assert [note.split()[2] for note in notes if note.startswith("batch size ")] == ["88"] and "87" in kept


def test_a_size_that_is_tried_again_alone_is_no_search(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow whose time is over cuts searches off (tasks/sweep/batch_search.py), and no repeat that is about to measure."""
    found_on(tmp_path, monkeypatch, Pretended)
    notes = read_journal(tmp_path / JOURNAL).notes
    assert [note["text"].split(" with")[0] for note in notes] == ["batch size 87 fits"]
    assert not any("batch_search" in note for note in notes)


def test_on_another_device_a_search_that_was_cut_off_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Smaller(Other, Shrunk):
        """Another device, which holds half as much."""

    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    cut_off(tmp_path / "cut", monkeypatch, LeavesPieces)
    found, notes = found_on(tmp_path / "rest", monkeypatch, Smaller)
    assert found.size == 43 and "44 does not" in found.note
    assert "batch_size max: the earlier search was on another device or with other libraries: this one starts anew" in notes
    assert {"1", "8"} <= {note.split()[2] for note in notes if note.startswith("batch size ")}


def test_a_search_that_was_cut_off_on_another_device_leaves_what_was_found_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherPieces(Other, LeavesPieces):
        """It needs a second process, in which it is cut off."""

    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    cut_off(tmp_path / "cut", monkeypatch, OtherPieces)
    found_on(tmp_path / "first", monkeypatch, Pretended)
    [file] = (tmp_path / "kept" / SIZES).glob("*.json")
    cut, _ = read_sizes(file.stem, pytest.fail)
    keep_sizes(file.stem, cut, pytest.fail)  # it was the last one that kept an answer
    found, notes = found_on(tmp_path / "here", monkeypatch, Pretended)
    assert found.size == 87 and "88 does not" in found.note
    tried = {note.split()[2] for note in notes if note.startswith("batch size ")}
    assert "87" in tried and not {"1", "8"} & tried, notes
    assert "batch_size max: the earlier search was on another device or with other libraries: what one here found counts" in notes


def test_the_size_of_another_device_ends_a_search_that_was_cut_off_here(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hold as much: the one size that the search here had still to try is the one that the other had found."""
    [whole] = read_sizes(kept.stem, pytest.fail)
    answers = {size: answer for size, answer in whole.answers.items() if size != whole.largest}
    there = {**whole.about, "device_name": "another"}
    kept.unlink()
    keep_sizes(kept.stem, whole.model_copy(update={"answers": answers}), pytest.fail)
    keep_sizes(kept.stem, whole.model_copy(update={"about": there}), pytest.fail)
    found, notes = found_on(tmp_path / "here", monkeypatch, Pretended)
    assert (found.size, found.seconds) == (87, 0.0) and "88 does not" in found.note
    assert [note.split()[2] for note in notes if note.startswith("batch size ")] == ["87"], notes


@pytest.mark.parametrize(("device", "seconds"), [(Pretended, 10.0), (LeavesPieces, 70.0)])
def test_what_a_search_took_beyond_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: type[Pretended], seconds: float
) -> None:
    monkeypatch.setattr(max_batch, "time", SimpleNamespace(monotonic=lambda: 10.0 * len(Here.commands)))  # each takes ten seconds
    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    found, _ = found_on(tmp_path / "first", monkeypatch, device)
    assert found.seconds == pytest.approx(seconds) and len(Here.commands) == 1 + seconds / 10
    repeat, _ = found_on(tmp_path / "repeat", monkeypatch, device)
    assert repeat.seconds is None and repeat.size == found.size
    for told, expected in ((found, seconds), (repeat, None), (None, None)):
        monkeypatch.setenv("SWEEPBENCH_BATCH_SEARCH_S", "1")
        tell_ranks(told)
        assert seconds_searched() == (None if expected is None else pytest.approx(expected))


def test_with_other_code_than_the_trial_imports_the_search_starts_anew(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, notes = found_on(tmp_path, monkeypatch, Pretended, code="c0ded")
    assert notes[0] == "batch_size max: an earlier trial of this cell found 87, with other code: the search starts anew"


def test_where_the_code_is_not_known_nothing_is_kept_or_taken(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.read_bytes()
    _, notes = found_on(tmp_path, monkeypatch, Pretended, code=None)
    assert not any("an earlier trial" in note for note in notes) and len(notes) > 3
    assert kept.read_bytes() == before


def test_other_files_of_the_tree_are_no_other_code(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.worker.environment.running_tree", lambda: "another")
    _, notes = found_on(tmp_path, monkeypatch, Pretended)
    assert notes == ["batch size 87 fits with 97.0% of the device's memory"]


def test_a_damaged_file_is_told_and_searched_anew(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.write_text("{")
    found, notes = found_on(tmp_path, monkeypatch, Pretended)
    assert found.size == 87 and str(kept) in notes[0]
    assert notes[0].startswith("batch_size max: what an earlier trial found cannot be read: ")


def test_that_nothing_can_be_kept_is_told_once_and_the_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEPT, str(tmp_path / "kept"))
    number = count(1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", f"temporary {next(number)}")

    monkeypatch.setattr("cluster.worker.kept_sizes.atomic_write", full)
    found, notes = found_on(tmp_path / "first", monkeypatch, Pretended)
    assert found.size == 87 and sum(note.startswith("batch size ") for note in notes) > 3
    assert [note for note in notes if "cannot be kept" in note] == [
        "batch_size max: what was found cannot be kept: [Errno 28] No space left on device: 'temporary 1'"
    ]


def test_another_cell_knows_nothing_of_it(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_batch, "read_sizes", lambda cell, say: read_sizes(f"{cell}0", say))
    assert len(found_on(tmp_path, monkeypatch, Pretended)[1]) > 3


def test_trials_that_keep_nothing_search_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEPT, raising=False)
    for name in ("a", "b"):
        assert len(found_on(tmp_path / name, monkeypatch, Pretended)[1]) > 3
