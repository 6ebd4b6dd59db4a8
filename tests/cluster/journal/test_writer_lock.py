"""The lock that a journal's writer holds, with real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.journal import earlier_attempt
from cluster.journal.errors import JournalError, JournalInUse, Writer
from cluster.journal.journal import JournalWriter, last_writer, read_journal
from cluster.journal.writer_lock import WriterLock, writer_ended
from cluster.process_marks import MARK

ROOT = Path(__file__).parents[3]
_WRITE = """
import os, sys, time
from cluster.journal.journal import JournalWriter
journal = JournalWriter(__import__("pathlib").Path(sys.argv[1]), 1, patience_s=60.0)
open(sys.argv[1], "rb").close()  # as a mirror reads it: this releases no lock
{more}
print("writes", flush=True)
time.sleep(600)
"""


@contextmanager
def writer(path: Path, more: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that writes the journal at `path`."""
    command = [sys.executable, "-c", _WRITE.format(more=more), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
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
        assert journal.locked is False
    assert writer_ended(path, 0.0) is None and b"something" in path.read_bytes()
    assert earlier_attempt.await_end(path, 0.0) == ([], 0.0)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_disk_that_fails_as_the_lock_is_taken_is_no_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "journal.jsonl"
    path.touch()

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        JournalWriter(path, 1)
    with pytest.raises(OSError, match=os.strerror(number)):
        writer_ended(path, 0.0)
    assert path.read_bytes() == b"", "nothing is written without the lock"


def test_who_only_asks_never_keeps_a_writer_from_its_lock(tmp_path: Path) -> None:
    """Another process asks and is stopped just then: it holds the lock for much longer than an instant."""
    path = tmp_path / "journal.jsonl"
    path.touch()
    with (
        asking(path) as other,
        subprocess.Popen([sys.executable, "-c", _WRITE.format(more=""), str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process,
    ):
        assert process.stdout is not None
        try:
            assert writer_ended(path, 0.0) is True, "those that ask do not take each other for a writer"
            assert not select.select([process.stdout], [], [], 1.0)[0] and path.read_bytes() == b"", "it does not write without the lock"
            other.kill()
            assert process.stdout.readline() == "writes\n"
            assert writer_ended(path, 0.0) is False
        finally:
            process.kill()


@contextmanager
def asking(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that asks whether the journal is written, and stops while it does."""
    program = (
        "import fcntl, sys, time\nfrom pathlib import Path\nfrom cluster.journal import writer_lock\n"
        "writer_lock.os.close = lambda descriptor: (print('asks', flush=True), time.sleep(600))\n"
        "writer_lock.writer_ended(Path(sys.argv[1]), 0.0)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "asks\n"
            yield process
        finally:
            process.kill()


def test_a_writer_gives_up_while_another_one_writes_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with writer(path) as process:
        before = path.read_bytes()
        who = rf"process {process.pid} on {re.escape(os.uname().nodename)} \(attempt 1\)"
        said = rf"^{re.escape(str(path))}: {who} or a child of it still writes there after 0\.1 s, so no other attempt may; end them$"
        with pytest.raises(JournalInUse, match=said):
            JournalWriter(path, 2, patience_s=0.1)
        with pytest.raises(JournalInUse, match=who):
            earlier_attempt.await_end(path, 0.1)
        assert path.read_bytes() == before
        process.kill()
        process.wait()
        JournalWriter(path, 2, patience_s=0.0).close()
    assert read_journal(path).attempt == 2


def test_a_lock_that_a_windows_share_refuses_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """flock(2): on SMB it fails with EACCES where another has the lock."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    path = tmp_path / "journal.jsonl"
    path.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert writer_ended(path, 0.0) is False
    with pytest.raises(JournalInUse, match="another process or a child of it"):
        JournalWriter(path, 1, patience_s=0.0)


def test_a_writer_that_meets_a_damaged_journal_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"no line of a journal\n")
    with pytest.raises(JournalError, match="is not a journal line"):
        JournalWriter(path, 2)
    assert writer_ended(path, 0.0) is True and path.read_bytes() == b"no line of a journal\n"


def test_the_writer_that_is_named_is_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert str(last_writer(path)) == "another process", "it has written nothing yet"
    for attempt in (1, 2):
        with JournalWriter(path, attempt, trial="abc") as journal:
            journal.append("note", text="something")
    assert last_writer(path) == Writer(os.getpid(), os.uname().nodename, 2, "abc")
    assert str(last_writer(path)) == f"process {os.getpid()} on {os.uname().nodename} (attempt 2)"
    path.write_bytes(b"damaged\n")
    assert last_writer(path) == Writer()


@pytest.mark.parametrize(
    ("writer", "told"),
    [
        (Writer(7, "node-7", 1, "abc"), "end them on node-7, where `grep -lsz SWEEPBENCH_TRIAL=abc /proc/[0-9]*/environ` lists them"),
        (Writer(7, "node-7", 1), "end them"),  # of an early journal
        (Writer(7, None, 1, "abc"), "end them"),
        (Writer(), "end them"),
    ],
)
def test_where_the_processes_are_to_be_ended_and_how_they_are_found_is_said(writer: Writer, told: str) -> None:
    who = f"{writer} or a child of it still writes there after 30 s"
    assert str(JournalInUse.after(30.0, Path("j"), writer)) == f"j: {who}, so no other attempt may; {told}"


def test_the_command_that_is_named_finds_the_processes_of_the_trial_and_no_others(tmp_path: Path) -> None:
    key = "abcdef0123456789"
    told = Writer(7, "here", 1, key).how_to_end.split("`")[1]
    program = [sys.executable, "-c", "print(flush=True); input()"]
    with (
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, MARK: key}) as marked,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, MARK: key[::-1]}) as other,
    ):
        for process in (marked, other):
            assert process.stdout is not None and process.stdout.readline()
        found = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=False).stdout.split()
        for process in (marked, other):
            process.communicate(b"\n")
    assert found == [f"/proc/{marked.pid}/environ"]


def test_what_the_earlier_writer_adds_until_it_ends_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    more = "sys.stdin.readline()\nimport time\njournal.append('note', text='a last word')\njournal.close()"
    program = _WRITE.format(more="").replace("time.sleep(600)", more)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == "writes\n"
        begun = threading.Timer(0.3, lambda: (process.stdin.write("\n"), process.stdin.flush()))  # type: ignore[union-attr]
        begun.start()
        with JournalWriter(path, 2, patience_s=60.0):
            pass
        begun.join()
    assert [note["text"] for note in read_journal(path, 1).notes] == ["a last word"]
    assert read_journal(path).attempt == 2


def test_a_wait_for_an_earlier_attempt_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    assert earlier_attempt.await_end(path, 0.0) == ([], 0.0)
    with writer(path) as process:
        killing = threading.Timer(0.3, process.kill)
        killing.start()
        [note], waited_s = earlier_attempt.await_end(path, 60.0)
        killing.join()
    who = f"process {process.pid} on {os.uname().nodename} (attempt 1)"
    assert note == f"waited {waited_s:.1f} s for the end of {who}, which wrote here" and 0.0 < waited_s < 60.0
    assert capfd.readouterr().err == f"{path}: waiting up to 60 s for the end of {who}\n"


def test_nothing_is_written_after_the_lock_was_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was full when the journal was written, and has room again when it is closed."""
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(path, 1, interval=3600.0)
    descriptor, room = journal._file.fileno(), path.stat().st_size + 10
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    released: list[int] = []
    release = WriterLock.release
    monkeypatch.setattr(WriterLock, "release", lambda lock: (release(lock), released.append(path.stat().st_size)))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
        journal.append("note", text="something")
        with pytest.raises(OSError, match="File too large"):
            journal.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert released == [room] and os.fstat(descriptor).st_size == room
        with pytest.raises(OSError, match="File too large"):
            journal.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.stat().st_size == room, "closing the file added what could not be written before"


def test_the_lock_outlives_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(path, 1)
    file, asked = journal._file, []

    class Slow:
        """As on a file system that writes when a file is closed."""

        closed = False

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def close(self) -> None:
            asked.append(writer_ended(path, 0.0))
            file.close()
            asked.append(writer_ended(path, 0.0))

    monkeypatch.setattr(journal, "_file", Slow())
    journal.close()
    assert asked == [False, False] and writer_ended(path, 0.0) is True
