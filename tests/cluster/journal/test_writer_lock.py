"""The lock that a journal's writer holds, with real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.journal.journal import JournalWriter
from cluster.journal.writer_lock import writer_ended

_WRITE = """
import os, sys, time
from cluster.journal.journal import JournalWriter
journal = JournalWriter(__import__("pathlib").Path(sys.argv[1]), 1)
open(sys.argv[1], "rb").close()  # as a mirror reads it: this releases no lock
{more}
print("writes", flush=True)
time.sleep(600)
"""


@contextmanager
def writer(path: Path, more: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that writes the journal at `path`."""
    command = [sys.executable, "-c", _WRITE.format(more=more), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "writes\n"
            yield process
        finally:
            process.kill()


def test_a_writer_has_ended_once_its_process_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert writer_ended(path, 0.0), "nobody has written it"
    with writer(path) as process:
        assert writer_ended(path, 0.0) is False
        process.kill()
        assert writer_ended(path, 60.0) is True


def test_a_child_that_was_forked_with_the_journal_counts_as_its_writer(tmp_path: Path) -> None:
    path, told = tmp_path / "journal.jsonl", tmp_path / "pid"
    with writer(path, f"child = os.fork()\nif not child: time.sleep(600)\nopen({str(told)!r}, 'w').write(str(child))") as process:
        process.kill()
        process.wait()
        child = int(told.read_text())
        try:
            assert writer_ended(path, 0.0) is False
        finally:
            os.kill(child, signal.SIGKILL)
        assert writer_ended(path, 60.0) is True


def test_a_journal_that_is_closed_has_no_writer_although_a_child_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(path, 1)
    inherited = os.dup(journal._file.fileno())  # as a forked child has it
    assert writer_ended(path, 0.0) is False
    journal.close()
    assert writer_ended(path, 0.0) is True
    os.close(inherited)


def test_a_writer_that_could_not_write_is_none_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(path, 1, interval=3600.0)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    journal.append("note", text="something")
    with pytest.raises(OSError, match="no space left"):
        journal.flush()
    assert writer_ended(path, 0.0) is True
    with pytest.raises(OSError, match="no space left"):
        journal.close()


def test_on_a_file_system_without_locks_nobody_knows_and_a_journal_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path, 1) as journal:
        journal.append("note", text="something")
    assert writer_ended(path, 0.0) is None and b"something" in path.read_bytes()
