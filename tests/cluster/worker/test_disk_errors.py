"""A trial whose disk is full or can no longer be written: the exit status is all that it can still say."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.disk_errors import FULL, LOST, DiskError, disk_error
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
