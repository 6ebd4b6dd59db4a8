"""What is shown of a sweep is kept, is what putting it together gives, and is never shown of other bytes. On made-up sweeps."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cluster.journal.journal import JournalFollower
from experiments.trial import Outcome
from flows.cli.commands import app
from flows.cli.show_sweeps import print_sweep
from tasks.analysis.results import load_sweep
from tasks.report import kept_shown, make_shown
from tasks.report.kept_shown import read_shown
from tasks.report.make_shown import shown_of_loaded
from tasks.report.write import write_report
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.store import SweepStore
from tests.tasks.fake_sweep import SWEEP_ID, Fake, make_sweep, trial_dirs

READ_OF_A_SWEEP = ("plan.json", "slots.jsonl", "held_time.json", "known_spread.json", "certificates.json")
READ_OF_A_TRIAL = ("trial.json", "result.json", "journal.jsonl")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder as the sweep's report left it: figures take most of a second to draw, so it is written once."""
    runs = tmp_path_factory.mktemp("kept") / "runs"
    fakes = [Fake({"pool": "cpu", "dataloader_workers": at}, rate=100.0 + 20 * at, repeats=2, steps=45) for at in range(2)]
    fakes.append(Fake({"pool": "cpu", "dataloader_workers": 3}, outcome=Outcome.DOES_NOT_FIT, reason="out of memory"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPBENCH_RUNS", str(runs))
        patch.setattr(make_shown, "LEAST", 1)
        folder = make_sweep(runs, fakes)
        SlotLog(folder / "slots.jsonl").taken(trial_dirs(folder)[0].name, "cpu", ["0"], 1_767_225_600.0)
        (folder / "held_time.json").write_text('{"slots": 1, "trials": []}')
        write_report(folder)
    runs.rename(runs.with_name("as reported"))
    return runs


@pytest.fixture
def sweep_dir(reported: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cells of two repeats and one that does not fit, after their report. Anew for each test where it was written: of a sweep at
    another place nothing is kept."""
    shutil.rmtree(reported, ignore_errors=True)
    shutil.copytree(reported.with_name("as reported"), reported)
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(reported))
    monkeypatch.setattr(make_shown, "LEAST", 1)
    return reported / SWEEP_ID


@pytest.fixture
def put_together(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sweeps that were put together."""
    found: list[str] = []
    made = make_shown.made_shown

    def noted(sweep: Any, parts: Any) -> Any:
        found.append(sweep.sweep_id)
        return made(sweep, parts)

    monkeypatch.setattr(make_shown, "made_shown", noted)
    return found


def show() -> str:
    page = Console(file=StringIO(), width=200)
    print_sweep(page, SweepStore(SWEEP_ID))
    return page.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_what_the_report_kept_is_what_a_look_would_put_together(sweep_dir: Path, put_together: list[str]) -> None:
    kept = read_shown(sweep_dir)
    assert kept == shown_of_loaded(load_sweep(sweep_dir)) and put_together == [SWEEP_ID]
    assert kept is not None and len(kept.trials) == 5 and kept.comparison is not None
    assert kept.comparison.certificates and "MP-1" in kept.comparison.line
    text = show()
    assert put_together == [SWEEP_ID], "nothing was put together for it"
    (sweep_dir / ".shown.json").unlink()
    assert show() == text and put_together == [SWEEP_ID] * 2
    assert read_shown(sweep_dir) == kept, "a look keeps it too"


def test_nothing_is_parsed_for_what_is_kept(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(follower: JournalFollower) -> Any:
        raise AssertionError(follower.path)

    monkeypatch.setattr(JournalFollower, "poll", never)
    assert "MP-1" in show()


def files(sweep_dir: Path) -> list[Path]:
    found = [*(sweep_dir / name for name in READ_OF_A_SWEEP), *(trial_dirs(sweep_dir)[1] / name for name in READ_OF_A_TRIAL)]
    assert all(path.exists() for path in found)
    return found


def test_a_flipped_bit_and_a_cut_of_any_file_that_is_read_are_seen(sweep_dir: Path) -> None:
    """Of each file some 20 places, its first and its last byte among them."""
    for path in files(sweep_dir):
        data = path.read_bytes()
        for place in {*range(0, len(data), max(1, len(data) // 19)), len(data) - 1}:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
            assert read_shown(sweep_dir) is None, (path, place)
            path.write_bytes(data[:place])
            assert read_shown(sweep_dir) is None, (path, place)
        path.unlink()
        assert read_shown(sweep_dir) is None, path
        path.write_bytes(data)
        assert read_shown(sweep_dir) is not None


@pytest.mark.parametrize("name", ["launch.json", "device_state.jsonl"])
def test_a_file_of_a_trial_that_was_not_there_is_seen(sweep_dir: Path, name: str) -> None:
    (trial_dirs(sweep_dir)[1] / name).write_text("{}")
    assert read_shown(sweep_dir) is None


def test_a_damaged_trial_is_told_of_and_its_sweep_not_kept(sweep_dir: Path, put_together: list[str]) -> None:
    path = trial_dirs(sweep_dir)[1] / "result.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    for _ in range(2):
        assert "unreadable" in show()
    assert put_together == [SWEEP_ID] * 2
    path.write_bytes(whole)
    assert "unreadable" not in show() and put_together == [SWEEP_ID] * 2, "it is again what was kept"


def test_a_trial_of_a_damaged_journal_is_left_out_and_named(sweep_dir: Path) -> None:
    """Its result can be read, but figures without it are others."""
    whole = CliRunner().invoke(app, ["show", SWEEP_ID])
    assert whole.exit_code == 0 and "left out" not in show()
    path = trial_dirs(sweep_dir)[1] / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in (lines[:-1], lines[:-5], [*lines[:9], lines[9].replace(b"0", b"1", 1), *lines[10:]]):
        path.write_bytes(b"".join(damaged))
        told = CliRunner().invoke(app, ["show", SWEEP_ID])
        assert told.exit_code == 1 and str(path) in told.output and show().count("left out: a file of it is damaged") == 1
        found = CliRunner().invoke(app, ["show", SWEEP_ID, "--json"])
        data = json.loads(found.stdout)
        assert found.exit_code == 1 and [str(path) in problem for problem in data["damaged"]] == [True]
        assert [trial["reason"] for trial in data["trials"] if trial["folder"] == str(path.parent)] == data["damaged"]
    path.write_bytes(b"".join(lines))
    assert CliRunner().invoke(app, ["show", SWEEP_ID]).output == whole.output


@pytest.mark.parametrize("lacks", ["known_spread.json", "certificates.json"])
def test_what_rests_on_other_sweeps_files_is_not_kept(sweep_dir: Path, put_together: list[str], lacks: str) -> None:
    for name in (lacks, ".shown.json"):
        (sweep_dir / name).unlink()
    show()
    show()
    assert put_together == [SWEEP_ID] * 2 and not (sweep_dir / ".shown.json").exists()


def test_a_sweep_with_a_trial_to_come_is_not_kept(sweep_dir: Path, put_together: list[str]) -> None:
    (trial_dirs(sweep_dir)[1] / "result.json").unlink()
    (sweep_dir / ".shown.json").unlink()
    assert "to do" in show() and not (sweep_dir / ".shown.json").exists()


@pytest.mark.parametrize("change", [lambda text: text[:-9], lambda text: text.replace("MP-1", "MP-7"), lambda text: '{"trials": ["x"]}'])
def test_a_kept_file_that_was_changed_counts_for_nothing(sweep_dir: Path, change: Any) -> None:
    path, text = sweep_dir / ".shown.json", show()
    path.write_text(change(path.read_text()))
    assert read_shown(sweep_dir) is None and show() == text and read_shown(sweep_dir) is not None


def test_what_other_code_kept_counts_for_nothing(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_shown, "code_digest", lambda: "0" * 16)
    assert read_shown(sweep_dir) is None


def test_what_is_written_while_it_is_put_together_is_not_passed_over(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = load_sweep(sweep_dir)
    source = make_shown.report_source

    def meanwhile(*arguments: Any) -> Any:
        found = source(*arguments)
        SlotLog(sweep_dir / "slots.jsonl").given_back(trial_dirs(sweep_dir)[0].name)
        return found

    monkeypatch.setattr(make_shown, "report_source", meanwhile)
    shown_of_loaded(sweep)
    assert read_shown(sweep_dir) is None


def test_a_report_of_the_emulated_trials_changes_nothing_of_it(sweep_dir: Path) -> None:
    before = (sweep_dir / ".shown.json").read_bytes()
    write_report(sweep_dir, emulated=True)
    assert (sweep_dir / ".shown.json").read_bytes() == before


def test_a_small_sweep_is_not_kept(sweep_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sweep_dir / ".shown.json").unlink()
    monkeypatch.setattr(make_shown, "LEAST", 6)
    show()
    assert not (sweep_dir / ".shown.json").exists()


def test_a_copy_elsewhere_is_put_together(sweep_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / sweep_dir.name
    shutil.copytree(sweep_dir, copy)
    assert read_shown(copy) is None
