"""Every single bit that flips and every cut of the files that a finished sweep's figures rest on is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from cluster.journal.errors import JournalError, LaterJournal
from cluster.journal.journal import JournalWriter, read_journal
from cluster.journal.lines import encode
from cluster.sampler.state_file import mark_of, read_records
from experiments.config.errors import DamagedFile
from experiments.json_file import parse_model, read_model
from experiments.trial import DataSource, Outcome, Trial, TrialResult
from tasks.analysis.results import load_sweep
from tasks.sweep import trial_record
from tasks.sweep.plan import renew, states
from tasks.sweep.result_file import read_result
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.trial_record import damage_of, journal_of, keep_aside, last_attempt, tell_trial
from tasks.sweep.what_is_left import what_is_left
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

STEP = {"measured": True, "loss": 0.5, "samples": 8, "total_s": 0.125, "forward_backward_s": -0.1}


def measured(store: SweepStore, trial: Trial, steps: int = 2, attempt: int = 1) -> Path:
    """What a trial leaves that ended ok."""
    folder = store.trial_dir(trial.key)
    with JournalWriter(folder / "journal.jsonl", attempt, interval=60, trial=trial.key) as journal:
        journal.append("environment", device_name="a-device")
        for number in range(1, steps + 1):
            journal.append("step", t=100.0 + number, step=number, **STEP)
        journal.append("end", outcome="ok", reason=None)
    with JournalWriter(folder / "device_state.jsonl", attempt, interval=60) as state:
        state.append("state", t=101.5, cpu={"busy": 0.5})
    marks = {"journal": read_journal(folder / "journal.jsonl").mark, "device_state": mark_of(folder / "device_state.jsonl", attempt)}
    assert None not in marks.values()
    store.save_result(make_result(trial, Outcome.OK, attempt=attempt).model_copy(update=marks))
    return folder


@pytest.fixture
def store() -> SweepStore:
    return saved(make_plan([make_trial(1), make_trial(2)], tree="0" * 16))


def damage(trial: Trial, folder: Path) -> DamagedFile | None:
    """What is found now: files that are written within a tick of the clock look the same."""
    trial_record._checked.cache_clear()
    return damage_of(trial, folder)


def flips(data: bytes) -> Iterator[bytes]:
    """The data with each of its bits flipped, one at a time."""
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


@pytest.mark.parametrize("name", ["journal.jsonl", "device_state.jsonl"])
def test_every_flip_and_every_cut_of_what_was_recorded_is_found(store: SweepStore, name: str) -> None:
    trial = make_trial(1)
    folder = measured(store, trial)
    path, result = folder / name, store.result(trial.key)
    assert result is not None and result.journal is not None and result.device_state is not None

    def read() -> object:
        if name == "journal.jsonl":
            return journal_of(folder, result, trial.key)
        return read_records(path, result.attempt, result.device_state)

    whole = path.read_bytes()
    assert read() and damage(trial, folder) is None
    damaged = [*flips(whole), *(whole[:size] for size in range(len(whole)))]
    assert len(damaged) == 9 * len(whole) and len(whole) > 200
    unseen = []
    for data in damaged:
        path.write_bytes(data)
        try:
            read()
        except JournalError as error:
            assert error.path == path
        else:
            unseen.append(data)
    assert unseen == []
    assert getattr(damage(trial, folder), "path", None) == path, "what reads the whole record finds it too"
    path.unlink()
    assert str(path) in str(damage(trial, folder))
    path.write_bytes(whole)
    assert damage(trial, folder) is None


@pytest.mark.parametrize("name", ["result.json", "trial.json", "plan.json"])
def test_every_flip_and_every_cut_of_a_sealed_file_is_found_or_changes_nothing(store: SweepStore, name: str) -> None:
    """A seal is over what a file says: two ways to write the same number say the same. Of the long plan every 13th bit is tried."""
    trial = make_trial(1)
    folder = measured(store, trial)
    path = (store.dir if name == "plan.json" else folder) / name
    kind: type[BaseModel] = {"result.json": TrialResult, "trial.json": Trial, "plan.json": Plan}[name]
    whole = path.read_bytes()
    same, found = json.loads(whole), 0
    parse_model(whole, kind, path, "")
    damaged = [*flips(whole), *(whole[:size] for size in range(len(whole)))]
    for data in damaged[:: 13 if name == "plan.json" else 1]:
        try:
            parse_model(data, kind, path, "")
        except DamagedFile as error:
            assert error.path == path
            found += 1
        else:
            assert json.loads(data) == same, data
    assert found > len(whole) / 2


def test_another_trials_journal_and_an_earlier_one_of_the_same_trial_are_refused(store: SweepStore) -> None:
    one, two = make_trial(1), make_trial(2)
    folder, other = measured(store, one), measured(store, two)
    own = (folder / "journal.jsonl").read_bytes()
    shutil.copy(other / "journal.jsonl", folder / "journal.jsonl")
    assert f"journal.jsonl, line 1: is of trial {two.key}, not of {one.key}" in str(damage(one, folder))
    (folder / "journal.jsonl").unlink()
    with JournalWriter(folder / "journal.jsonl", 1, interval=60, trial=one.key) as journal:
        journal.append("end", outcome="ok", reason=None)
    assert "journal.jsonl, line 3: has 2 other records, and result.json counts 5 records of attempt 1" in str(damage(one, folder))
    (folder / "journal.jsonl").write_bytes(own)
    assert damage(one, folder) is None
    shutil.copy(other / "result.json", folder / "result.json")
    assert f"result.json is of trial {two.key}" in str(damage(one, folder))
    shutil.copy(other / "trial.json", folder / "trial.json")
    assert f"trial.json is of trial {two.key}" in str(damage(one, folder))


def test_a_journal_without_its_close_record_is_right_while_nothing_says_that_the_attempt_ended(store: SweepStore) -> None:
    trial = make_trial(1)
    folder = measured(store, trial)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):  # a trial that was killed at any moment
        (folder / "journal.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:-1])
        (folder / "result.json").unlink(missing_ok=True)
        assert damage(trial, folder) is None
        store.save_result(make_result(trial, Outcome.INFRA, reason="worker lost"))
        assert damage(trial, folder) is None
        store.save_result(make_result(trial, Outcome.OK))
        found = str(damage(trial, folder))
        assert ("ends before attempt 1 was closed" in found) == (kept > 0), "without an attempt record it is no journal of this version"


def test_a_journal_of_a_later_version_is_refused_and_its_trial_does_not_run_again(
    store: SweepStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither under its key nor under that of today's code: what can read it is the version that wrote it."""
    trial = store.load_plan().trials[0]
    monkeypatch.setattr("cluster.journal.journal.VERSION", 3)
    folder = measured(store, trial)
    monkeypatch.undo()
    said = f"{folder / 'journal.jsonl'}, line 1: is of version 3, and this one reads journals to version 2; read it with that version"
    plan = store.load_plan()
    for refuses in (lambda: what_is_left(store, plan), lambda: states(plan), lambda: renew(plan)):
        trial_record._checked.cache_clear()
        with pytest.raises(LaterJournal) as caught:
            refuses()
        assert str(caught.value) == said
    assert str(damage(trial, folder)) == said


def killed(path: Path, trial: Trial, attempt: int) -> None:
    """What an attempt leaves that was killed: its records so far, and no close record."""
    with JournalWriter(path, attempt, interval=60, trial=trial.key) as journal:
        for number in range(1, 4):
            journal.append("step", t=50.0 + number, step=number, **STEP)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))


def test_every_cut_of_a_killed_attempt_before_the_one_that_ended_is_found(store: SweepStore) -> None:
    """It has no close record. What comes after it holds it: the first line of the next attempt continues its checksum."""
    trial = make_trial(1)
    folder = store.trial_dir(trial.key)
    path = folder / "journal.jsonl"
    killed(path, trial, 1)
    size = path.stat().st_size
    measured(store, trial, attempt=2)
    whole, result = path.read_bytes(), store.result(trial.key)
    assert result is not None and result.attempt == 2 and damage(trial, folder) is None
    for begin in range(size):  # bytes from there to the end of the killed attempt are gone
        path.write_bytes(whole[:begin] + whole[size:])
        with pytest.raises(JournalError):
            journal_of(folder, result, trial.key)
    path.write_bytes(whole)
    assert journal_of(folder, result, trial.key).attempt == 2


def test_a_cut_of_a_killed_attempt_that_is_the_last_changes_no_summary(store: SweepStore) -> None:
    """Nothing says how far it came, so the cut is not found. Nothing is compared of an attempt that did not end ok."""
    trial = make_trial(1)
    folder = measured(store, trial)  # ok, but disturbed, so that it was measured again
    path, result = folder / "journal.jsonl", store.result(trial.key)
    assert result is not None
    figures = journal_of(folder, result, trial.key).steps
    size = path.stat().st_size
    killed(path, trial, 2)
    whole = path.read_bytes()
    for cut in range(size, len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert damage(trial, folder) is None
        assert journal_of(folder, result, trial.key).steps == figures, "they are of the attempt that ended"
    lost = make_result(trial, Outcome.INFRA, attempt=2, reason="worker lost")
    store.save_result(lost)
    for cut in range(size, len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert damage(trial, folder) is None
        row = load_sweep(store.dir).rows[0]
        assert (row.outcome, row.summary, row.problem) == ("infra", {}, None)


def test_records_of_an_early_version_are_read_without_the_guarantee(tmp_path: Path, store: SweepStore) -> None:
    """Their attempts were not closed, and their results say nothing of the journal."""
    trial = make_trial(1)
    folder = measured(store, trial)
    crc, text = 0, b""
    for record in ({"kind": "attempt", "t": 1.0, "attempt": 1, "pid": 1}, {"kind": "step", "t": 2.0, "step": 1, **STEP}):
        line, crc = encode(record, crc)
        text += line
    (folder / "journal.jsonl").write_bytes(text)
    early = make_result(trial, Outcome.OK)
    (folder / "result.json").write_text(early.model_dump_json())
    (folder / "trial.json").write_text(trial.model_dump_json())
    assert damage(trial, folder) is None
    journal = journal_of(folder, early, trial.key)
    assert (journal.version, journal.mark, len(journal.steps)) == (1, None, 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"{", "line 1: is not JSON"),
        (b"\xff{}", "byte 1: is not UTF-8"),
        (b"[1]", r"does not hold an object"),
        (b'{"key": 1}', "key: is 1: Input should be a valid string, and"),
        (b"[" * 100_000, "maximum recursion depth"),
        (None, "cannot be read (Is a directory)"),
        ("link", "is a link to nothing"),
    ],
)
def test_whatever_is_wrong_with_a_file_is_one_error_that_names_it(tmp_path: Path, content: bytes | str | None, problem: str) -> None:
    path = tmp_path / "result.json"
    if content is None:
        path.mkdir()
    elif isinstance(content, str):
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.write_bytes(content)
    with pytest.raises(DamagedFile) as caught:
        read_result(tmp_path)
    assert str(caught.value).startswith(str(path)) and problem in str(caught.value)
    assert str(caught.value).endswith("`sweep resume` keeps it aside and runs the trial again")


def test_a_folder_that_is_not_there_has_no_result(tmp_path: Path) -> None:
    assert read_result(tmp_path / "nowhere") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(DamagedFile, match=r"cannot be read \(Not a directory\)"):
        read_result(tmp_path / "file")


def test_a_damaged_record_is_kept_aside_and_attempts_go_on_from_it(store: SweepStore) -> None:
    trial = make_trial(1)
    folder = measured(store, trial, attempt=3)
    (folder / "log.txt").write_text("said")
    (folder / "trace.json.gz").write_bytes(b"of attempt 3")
    names = ("journal.jsonl", "result.json", "device_state.jsonl", "trial.json", "trace.json.gz")
    kept = {name: (folder / name).read_bytes() for name in names}
    aside = keep_aside(folder)
    assert aside == folder / "damaged-a3"
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == kept
    assert sorted(path.name for path in folder.iterdir()) == ["damaged-a3", "log.txt"]
    assert last_attempt(folder) == 3 and damage(trial, folder) is None
    (folder / "launch.json").write_text('{"launcher": "local", "attempt": 4, "id"')
    assert last_attempt(folder) == 4, "a damaged file tells what is still to be seen"
    assert keep_aside(folder).name == "damaged-a4"
    (folder / "result.json").write_text("")
    assert keep_aside(folder).name == "damaged-a5", "nothing is overwritten"
    (folder / "result.json").write_text("")
    assert keep_aside(folder, "crashed").name == "crashed-a6" and last_attempt(folder) == 6
    (folder / "result.json").write_text("")
    assert keep_aside(folder).name == "damaged-a7", "both are counted"


def test_trial_json_is_written_again_where_its_data_lie_elsewhere(store: SweepStore) -> None:
    trial = make_trial(1)
    folder = store.trial_dir(trial.key)
    tell_trial(trial, folder)
    first = (folder / "trial.json").stat()
    tell_trial(trial, folder)
    assert (folder / "trial.json").stat().st_ino == first.st_ino, "what says the same stays"
    moved = trial.model_copy(update={"data": DataSource(uri="/elsewhere/data", fingerprint="f")})
    tell_trial(moved, folder)
    assert read_model(folder / "trial.json", Trial, "") == moved
    (folder / "trial.json").write_text((folder / "trial.json").read_text().replace("elsewhere", "nowhere"))
    with pytest.raises(DamagedFile, match="its seal does not hold"):
        tell_trial(moved, folder)


def test_a_result_is_written_sealed_and_read_as_it_was(store: SweepStore) -> None:
    result = make_result(make_trial(1), Outcome.OK, summary={"throughput": 1.0, "none": None})
    store.save_result(result)
    path = store.trial_dir(result.key) / "result.json"
    assert read_result(path.parent) == result and len(json.loads(path.read_text())["seal"]) == 64
    path.write_text(path.read_text().replace('"throughput": 1.0', '"throughput": 2.0'))
    with pytest.raises(DamagedFile, match=r"result\.json was changed after it was written: its seal does not hold"):
        read_result(path.parent)


def test_what_stayed_the_same_is_not_read_again(store: SweepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(1)
    folder = measured(store, trial)
    assert damage(trial, folder) is None
    monkeypatch.setattr(trial_record, "read_record", lambda key, folder: pytest.fail("it was read again"))
    assert damage_of(trial, folder) is None
    (folder / "launch.json").write_text("{")
    with pytest.raises(pytest.fail.Exception):
        damage_of(trial, folder)
