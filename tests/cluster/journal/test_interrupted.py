"""A journal whose writer is interrupted by what a signal's handler raises, at each of its lines: it stays whole and loses nothing."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cluster.journal import journal as writer
from cluster.journal import replication, writer_lock
from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.object_store import Storage
from cluster.journal.replication import JournalCopy, JournalMirror
from cluster.journal.writer_lock import writer_ended

FILES = (writer.__file__, writer_lock.__file__, replication.__file__)
_CALLS_NOTHING = ("with ", "while True:", "try:", "return\n")


class Told(BaseException):
    """As the handler of SIGTERM raises it in a trial's process."""


@contextmanager
def told_at(number: int) -> Iterator[list[str]]:
    """Inside the block the line of this number (0: the first) that runs in a file of FILES raises Told. Yields where, or nothing.

    Not at lines that call nothing: Python handles signals after calls and jumps alone, so none between a `with` block and its end.
    """
    left, where, before = number, list[str](), sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not where and not line.startswith(_CALLS_NOTHING):
            if left == 0:
                where.append(f"{frame.f_code.co_qualname}, line {frame.f_lineno}: {line.strip()}")
                raise Told
            left -= 1
        return trace

    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(before)


def each_line(act: Callable[[int], list[str]]) -> list[str]:
    """`act` with each number, as long as it was told to end somewhere. Returns where."""
    places = list[str]()
    for number in count():
        if not (where := act(number)):
            return places
        places += where
    raise AssertionError


def interrupted(act: Callable[[], object], number: int) -> list[str]:
    """Where `act` was interrupted."""
    with told_at(number) as where:
        try:
            act()
        except Told:
            assert where
    return where


def test_a_flush_that_is_interrupted_anywhere_is_made_good_by_the_next(tmp_path: Path) -> None:
    def act(number: int) -> list[str]:
        path = tmp_path / f"{number}.jsonl"
        with JournalWriter(path, 1, interval=3600.0) as journal:
            journal.append("step", step=1)
            journal.append("step", step=2)
            where = interrupted(journal.flush, number)
            journal.append("step", step=3)
        read = read_journal(path)
        assert [step["step"] for step in read.steps] == [1, 2, 3], where
        assert read.mark is not None and (read.mark.records, read.mark.closed) == (4, True), where
        return where

    places = each_line(act)
    for part in ("os.pwrite", "os.fsync", "self._written = ", "section.add", "self._queue.popleft()"):
        assert any(part in place for place in places), part


@pytest.mark.parametrize("written", [0, 1, 30, 200])
def test_a_line_that_was_half_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    pwrite, path = os.pwrite, tmp_path / "journal.jsonl"

    def half(descriptor: int, data: memoryview, offset: int) -> int:
        pwrite(descriptor, data[:written], offset)
        raise Told

    with JournalWriter(path, 1, interval=3600.0) as journal:
        journal.append("note", text="x" * 100)
        journal.append("step", step=1)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", half)
            with pytest.raises(Told):
                journal.flush()
        assert read_journal(path).attempt == 1, "what is there can be read"
    read = read_journal(path)
    assert ([step["step"] for step in read.steps], len(read.notes)) == ([1], 1) and read.mark is not None and read.mark.closed


def test_closing_that_is_interrupted_anywhere_leaves_a_journal_that_another_writer_continues(tmp_path: Path) -> None:
    def act(number: int) -> list[str]:
        path = tmp_path / f"{number}.jsonl"
        journal = JournalWriter(path, 1, interval=3600.0)
        journal.append("step", step=1)
        journal.flush()
        journal.append("step", step=2)
        where = interrupted(journal.close, number)
        journal.close()  # as by the end of a `with` block
        assert [step["step"] for step in read_journal(path).steps] in ([1], [1, 2]), where
        assert writer_ended(path, 0.0) is True, where
        with JournalWriter(path, 2, patience_s=0.0) as following:
            following.append("step", step=7)
        read = read_journal(path)
        assert (read.attempt, [step["step"] for step in read.steps]) == (2, [7]), where
        return where

    places = each_line(act)
    for part in ("self._stop.set()", "self._thread.join()", "self._write([body]", "self._file.close()", "self._lock_of_file.release()"):
        assert any(part in place for place in places), part


def test_the_thread_ends_quietly_where_closing_was_interrupted_before_it_was_told_to(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "journal.jsonl", 1, interval=3600.0)
    journal.append("step", step=1)
    stop, journal._stop = journal._stop, Unheard()
    with pytest.raises(Told):
        journal.close()
    journal._run()  # as the thread, whose file is closed by now
    stop.set()
    journal._thread.join()


class Unheard(threading.Event):
    """What is to tell a thread to end, and a signal breaks off. The thread looks often."""

    def set(self) -> None:
        raise Told

    def wait(self, timeout: float | None = None) -> bool:
        return False


def test_closing_that_is_interrupted_waits_for_what_the_thread_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the number of the closed file may be another file's by the time that it is written to."""
    path, pwrite, writes, go_on = tmp_path / "journal.jsonl", os.pwrite, threading.Event(), threading.Event()
    journal = JournalWriter(path, 1, interval=3600.0)
    journal.append("step", step=1)

    def slow(descriptor: int, data: memoryview, offset: int) -> int:
        writes.set()
        assert go_on.wait(60)
        return pwrite(descriptor, data, offset)

    def told() -> None:
        threading.Timer(0.2, go_on.set).start()
        raise Told

    monkeypatch.setattr(os, "pwrite", slow)
    writing = threading.Thread(target=journal.flush)
    writing.start()
    assert writes.wait(60)
    monkeypatch.setattr(journal._thread, "join", told)
    with pytest.raises(Told):
        journal.close()
    assert go_on.is_set(), "closed while the thread wrote"
    writing.join()
    assert [step["step"] for step in read_journal(path).steps] == [1]


class _Shelf(Storage):
    """Storage in memory. `changed`: names under which something else was put later."""

    def __init__(self) -> None:
        self.uri, self.objects, self.changed = "memory://", dict[str, bytes](), list[str]()

    def put(self, name: str, data: bytes) -> None:
        self.changed += [name] if self.objects.get(name, data) != data else []
        self.objects[name] = data

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)


def test_a_mirror_whose_end_is_interrupted_anywhere_sends_each_line_once_by_the_next_call(tmp_path: Path) -> None:
    def act(number: int) -> list[str]:
        path, shelf = tmp_path / f"{number}.jsonl", _Shelf()
        with JournalWriter(path, 1, interval=3600.0) as journal:
            journal.append("step", step=1)
        mirror = JournalMirror(path, shelf, 1, interval_s=3600.0)
        where = interrupted(mirror.close, number)
        mirror.close()
        assert b"".join(shelf.objects.values()) == path.read_bytes() and shelf.changed == [], where
        return where

    assert any("self.storage.put" in place for place in each_line(act))


def test_a_copy_that_is_interrupted_anywhere_has_each_line_once_after_the_next_call(tmp_path: Path) -> None:
    source, shelf = tmp_path / "source.jsonl", _Shelf()
    with JournalWriter(source, 1, interval=3600.0) as journal:
        journal.append("step", step=1)
    mirror = JournalMirror(source, shelf, 1, interval_s=3600.0)
    mirror.close()

    def act(number: int) -> list[str]:
        path = tmp_path / f"{number}.jsonl"
        copy = JournalCopy(path, shelf, 1)
        where = interrupted(copy.fetch, number)
        copy.fetch()
        assert path.read_bytes() == source.read_bytes(), where
        copy.fetch()
        assert path.read_bytes() == source.read_bytes(), where
        return where

    places = each_line(act)
    for part in ("self._number += 1", "self._crc = crc", "file.flush()", "os.fsync", "self._copied -= skipped"):
        assert any(part in place for place in places), part
