"""A trial whose disk is full or can no longer be written: the exit status is all that it can still say."""

from __future__ import annotations

import errno
import io
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import clear_frames

import pytest
import torch.utils.data

from cluster import disk_errors
from cluster.disk_errors import FULL, LOST, DiskError, disk_error, disk_failure, name_lost_folder, names_other_file
from cluster.worker import main as worker
from tests.contracts import make_trial

KEY = "d15c000000000001"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before, variables = signal.getsignal(signal.SIGTERM), dict(os.environ)
    yield
    signal.signal(signal.SIGTERM, before)
    os.environ.clear()
    os.environ.update(variables)


class FullLog(io.StringIO):
    """The log's disk is full, too."""

    def __init__(self, tried: list[Path]) -> None:
        super().__init__()
        self._tried = tried

    def write(self, text: str) -> int:
        self._tried.append(Path("log.txt"))
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("number", "disk"),
    [
        (errno.ENOSPC, FULL),
        (errno.EDQUOT, FULL),
        (errno.EROFS, LOST),
        (errno.EIO, LOST),
        (errno.ESTALE, LOST),
        (errno.EFBIG, None),
        (errno.EACCES, None),
    ],
)
def test_which_errors_say_so(number: int, disk: DiskError | None) -> None:
    assert disk_error(OSError(number, "x")) is disk
    assert disk_error(ValueError(number)) is None


def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> tuple[int, list[Path]]:
    """An attempt whose journal, result and log cannot be written. Its status, and what it tried to write."""
    trial = make_trial(tmp_path, KEY)
    (tmp_path / "trial.json").write_text(trial.model_dump_json())
    tried: list[Path] = []

    def refuse(path: Path, text: str) -> None:
        tried.append(path)
        raise OSError(number, os.strerror(number), str(path))

    def journal(*_: object) -> None:
        refuse(tmp_path / "journal.jsonl", "")

    monkeypatch.setattr(worker, "_run", journal)
    monkeypatch.setattr(worker, "atomic_write", refuse)
    monkeypatch.setattr(sys, "stderr", FullLog(tried))
    return worker.main(["--trial", str(tmp_path / "trial.json"), "--out", str(tmp_path), "--attempt", "1"]), tried


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, 74), (errno.EROFS, 73), (errno.EIO, 73)])
def test_neither_journal_nor_result_nor_log_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: int
) -> None:
    status, tried = attempt(tmp_path, monkeypatch, number)
    assert status == expected
    assert [path.name for path in tried] == ["journal.jsonl", "log.txt", "result.json", "log.txt"]


def test_another_error_of_files_is_no_such_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="Permission denied"):
        attempt(tmp_path, monkeypatch, errno.EACCES)


# --- which disk it is


ELSEWHERE = "it is not in the trial's own folder; check its disk or mount, the kernel's log (dmesg) says what happened to it"
UNNAMED = "of which file is not told, and the trial's own folder can be written; check the disk or mount of the data (dmesg)"


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN])
def test_a_file_that_cannot_be_read_says_whose_disk_it_is(tmp_path: Path, number: int) -> None:
    own, data = tmp_path / "own", tmp_path / "owned" / "train.parquet"  # one name begins as the other
    text = os.strerror(number)
    ours = disk_failure(OSError(number, text, str(own / "ray" / "x")), [tmp_path / "other", own])
    assert ours == ("disk_lost", f"[Errno {number}] {text}: '{own / 'ray' / 'x'}'", LOST.remedy)
    theirs = disk_failure(OSError(number, text, data), [own])
    assert theirs is not None and (theirs.kind, theirs.remedy) == ("data_lost", ELSEWHERE) and str(data) in theirs.text
    assert disk_failure(OSError(errno.ENOENT, "no such file", str(data)), [own]) is None


def test_a_link_to_a_disk_is_a_file_of_that_disk(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "own")
    failure = disk_failure(OSError(errno.EIO, "x", str(tmp_path / "runs" / "journal.jsonl")), [tmp_path / "own"])
    assert failure is not None and failure.kind == "disk_lost"


def test_a_full_disk_is_one_wherever_it_is(tmp_path: Path) -> None:
    for error in (OSError(errno.ENOSPC, "No space left"), OSError(errno.EDQUOT, "quota", "/data/cache")):
        assert disk_failure(error, [tmp_path]) == ("disk_full", str(error), "free some")


def test_where_no_file_is_named_the_trials_own_folder_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="Input/output error") as caught, open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.read(1)  # the kernel's own EIO: a read names no file
    assert caught.value.filename is None
    assert disk_failure(caught.value, [tmp_path]) == ("data_lost", "[Errno 5] Input/output error", UNNAMED)
    assert list(tmp_path.iterdir()) == [], "nothing is left of the trial"

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    assert disk_failure(caught.value, [tmp_path]) == ("disk_lost", "[Errno 5] Input/output error", LOST.remedy)


class Unreadable(torch.utils.data.Dataset[int]):
    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise OSError(errno.EIO, "Input/output error", self.path)


@pytest.mark.parametrize(("name", "kind"), [("data/a.parquet", "data_lost"), ("data/it's", "data_lost"), ("own/x", "disk_lost")])
def test_an_error_that_a_loaders_process_passes_on_as_text_is_the_same(tmp_path: Path, name: str, kind: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(OSError, match="Caught OSError in DataLoader worker") as caught:
        next(iter(torch.utils.data.DataLoader(Unreadable(path), num_workers=1)))
    clear_frames(caught.tb)  # the loader ends its process now; left to a garbage collection, it would wait 5 s for it
    assert caught.value.errno is None
    remedy = ELSEWHERE if kind == "data_lost" else LOST.remedy
    assert disk_failure(caught.value, [tmp_path / "own"]) == (kind, f"[Errno 5] Input/output error: {path!r}", remedy)


@pytest.mark.parametrize("text", ["image file is truncated", "[Errno 2] No such file or directory: '/data/x'"])
def test_another_text_of_such_an_error_says_nothing_of_a_disk(tmp_path: Path, text: str) -> None:
    assert disk_error(OSError(text)) is None and disk_failure(OSError(text), [tmp_path]) is None


def test_an_error_of_a_file_that_was_opened_by_its_number_names_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        os.chdir(2**20)
    assert caught.value.filename == 2**20 and disk_failure(caught.value, [tmp_path]) is None
    assert disk_failure(OSError(errno.EIO, "x", 7), [tmp_path]) == ("data_lost", "[Errno 5] x: 7", UNNAMED)
    assert not names_other_file(OSError(errno.EIO, "x", 7), [tmp_path])


@pytest.mark.parametrize(("path", "other"), [("own/x", False), ("own", False), ("owned/x", True), (None, False)])
def test_whether_an_error_names_a_file_of_others(tmp_path: Path, path: str | None, other: bool) -> None:
    error = OSError(errno.ENOSPC, "x", *([str(tmp_path / path)] if path else []))
    assert names_other_file(error, [tmp_path / "own"]) is other
    assert not names_other_file(ValueError(str(tmp_path)), [])


def test_an_error_says_to_other_nodes_that_this_ones_folder_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver of several workers could try only its own."""
    lost, full, named = OSError(errno.EIO, "x"), OSError(errno.ENOSPC, "x"), OSError(errno.EIO, "x", "/data/a")
    name_lost_folder(lost, tmp_path)
    assert lost.filename is None, "it can be written"

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        for error in (lost, full, named, ValueError("x")):
            name_lost_folder(error, tmp_path)
    assert (lost.filename, full.filename, named.filename) == (str(tmp_path), None, "/data/a")
    passed_on = pickle.loads(pickle.dumps(lost))
    assert disk_failure(passed_on, [tmp_path]) == ("disk_lost", f"[Errno 5] x: '{tmp_path}'", LOST.remedy)


def test_only_the_trials_own_folder_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []
    monkeypatch.setattr(disk_errors, "_cannot_be_written", lambda folder: tried.append(folder) or folder.name == "sweep")
    failure = disk_failure(OSError(errno.EIO, "x"), [tmp_path / "trial", tmp_path / "sweep"])
    assert failure is not None and failure.kind == "data_lost" and tried == [tmp_path / "trial"]


def test_of_several_errors_in_a_text_the_last_one_counts(tmp_path: Path) -> None:
    text = "Traceback:\nOSError: [Errno 2] No such file: '/data/first'\nOSError: [Errno 5] Input/output error: '/data/last'\n"
    assert disk_failure(OSError(text), [tmp_path]) == ("data_lost", "[Errno 5] Input/output error: '/data/last'", ELSEWHERE)
    swapped = text.replace("Errno 2", "Errno 30").replace("Errno 5", "Errno 2")
    assert disk_failure(OSError(swapped), [tmp_path]) is None
