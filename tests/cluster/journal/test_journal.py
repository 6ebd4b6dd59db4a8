"""The journal: what was written is what is read, and what was changed is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.journal.journal import JournalError, JournalFollower, JournalWriter, read_journal
from experiments.atomic_file import atomic_write


def write(path: Path, steps: int, attempt: int = 1) -> None:
    with JournalWriter(path, attempt) as journal:
        journal.append("environment", device_name="test")
        for step in range(1, steps + 1):
            journal.append("step", t=float(step), step=step, loss=1.0 / step, samples=8, total_s=0.1, measured=True)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "journal.jsonl", 3)
    journal = read_journal(tmp_path / "journal.jsonl")
    assert journal.attempt == 1
    assert [step["step"] for step in journal.steps] == [1, 2, 3]
    assert journal.steps[1]["loss"] == 0.5 and journal.steps[1]["t"] == 2.0
    assert journal.environment == {"device_name": "test"}


def test_every_line_is_plain_json(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j", 1) as journal:
        journal.append("step", step=1, loss=float("nan"), samples=1)
        journal.append("step", step=2, loss=float("inf"), samples=1)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "j").read_text().splitlines()]
    assert [(line.get("loss"), line.get("loss_text")) for line in lines[1:]] == [(None, "nan"), (None, "inf")]


def test_a_new_attempt_starts_over(tmp_path: Path) -> None:
    write(tmp_path / "j", 5)
    write(tmp_path / "j", 2, attempt=2)
    journal = read_journal(tmp_path / "j")
    assert journal.attempt == 2 and len(journal.steps) == 2


def test_a_torn_last_line_is_cut_off_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"step","t":9')
    assert len(read_journal(path).steps) == 2
    write(path, 1, attempt=2)
    assert path.read_bytes().startswith(whole)
    assert read_journal(path).attempt == 2


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        pytest.param(lambda lines: [lines[0], lines[1], lines[2].replace(b"1.0", b"2.0"), *lines[3:]], 3, id="a figure changed by hand"),
        pytest.param(lambda lines: [lines[0], *lines[2:]], 2, id="a line missing"),
        pytest.param(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2, id="two lines swapped"),
        pytest.param(lambda lines: [*lines[:-1], b"what is this\n"], 5, id="not a record"),
        pytest.param(lambda lines: [bytes([lines[0][0] ^ 1]) + lines[0][1:], *lines[1:]], 1, id="a bit flipped"),
    ],
)
def test_damage_is_named_and_nothing_is_overwritten(tmp_path: Path, damage: object, line: int) -> None:
    path = tmp_path / "j"
    write(path, 3)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(JournalError, match=rf"{path}, line {line}: ") as caught:
        read_journal(path)
    assert caught.value.line == line
    with pytest.raises(JournalError):
        JournalWriter(path, 2)
    assert path.read_bytes() == before


def test_the_checksum_names_the_content(tmp_path: Path) -> None:
    write(tmp_path / "a", 3)
    assert read_journal(tmp_path / "a").checksum == read_journal(tmp_path / "a").checksum
    write(tmp_path / "a", 1, attempt=2)
    first = read_journal(tmp_path / "a").checksum
    write(tmp_path / "a", 1, attempt=3)
    assert read_journal(tmp_path / "a").checksum != first


def test_a_follower_gives_each_record_once(tmp_path: Path) -> None:
    path = tmp_path / "j"
    follower = JournalFollower(path)
    assert follower.poll() == []
    with JournalWriter(path, 1) as journal:
        assert [record["kind"] for record in follower.poll()] == ["attempt"]
        journal.append("step", step=1)
        journal.flush()
        assert [record["kind"] for record in follower.poll()] == ["step"]
        assert follower.poll() == []


def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from cluster.journal.journal import JournalWriter
journal = JournalWriter(Path({str(tmp_path / "j")!r}), 1, interval=3600)
for step in range(100):
    journal.append("step", step=step)
journal.flush()
journal.append("step", step=100)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -9
    assert [step["step"] for step in read_journal(tmp_path / "j").steps] == list(range(100))


def test_a_full_disk_is_an_error_and_not_a_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j", 1, interval=3600)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    journal.append("step", step=1)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    with pytest.raises(OSError, match="No space left"):
        journal.append("step", step=2)
    with pytest.raises(OSError, match="No space left"):
        journal.close()


def test_publish_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "result.json"
    atomic_write(target, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
