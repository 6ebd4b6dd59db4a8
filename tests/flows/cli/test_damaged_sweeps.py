"""Commands over damaged sweeps: each names the file, goes on with the others, and never ends in a traceback."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.config.paths import runs_root
from experiments.trial import Outcome
from flows.cli.commands import app
from flows.cli.options import out
from tasks.nightly.store import NightStore, night_names
from tasks.sweep import store as sweeps
from tasks.sweep.plan import compare_with_last, expected_seconds, states
from tasks.sweep.store import SweepStore, list_sweeps, warn_once
from tests.tasks.fake_sweep import Fake, make_sweep, trial_dirs
from tests.tasks.plan_support import make_plan, make_trial, saved

BAD, GOOD = "made_up-20260102-000000-0000", "made_up-20260101-000000-0000"
DAMAGE = {
    "empty": b"",
    "truncated": b'{"schema_version": 3, "sweep_id": "made',
    "high bit": b'{"schema_version": 3, "sweep_id": "\xed"}',
    "wrong types": b'{"schema_version": "3", "suite": [], "trials": 1, "status": [], "outcome": 1}',
    "a list": b"[]",
    "deep": b"[" * 50_000,
    "a folder": None,
    "a link to nothing": "link",
}


def damage(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    content = DAMAGE[kind]
    if content is None:
        path.mkdir()
    elif isinstance(content, str):
        path.symlink_to(path.with_name("nowhere"))
    else:
        path.write_bytes(content)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> tuple[SweepStore, SweepStore]:
    """The sweep that gets damaged, newer than the other, so that it is met first; both of the same cells."""
    monkeypatch.setattr(out, "_width", 300)  # a table breaks no word
    warn_once.cache_clear()
    old = saved(make_plan([make_trial(1, sweep_id=BAD)]), t1=Outcome.OK)
    return old, saved(make_plan([make_trial(1, sweep_id=GOOD)]), t1=Outcome.OK)


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output.replace("\n", "")


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_plan_is_named_and_stands_in_nobodys_way(
    both: tuple[SweepStore, SweepStore], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = both
    path = old.dir / "plan.json"
    damage(path, kind)
    assert list_sweeps() == [BAD, GOOD]
    code, text = said("list")
    assert code == 0 and str(path) in text and "complete" in text and "unreadable" in text
    for words in (("show", BAD), ("resume", BAD), ("report", BAD), ("plan", "--sweep", BAD), ("compare", BAD, GOOD), ("stop", BAD)):
        code, text = said(*words)
        assert code == 1 and str(path) in text, (words, text)
    plan = new.load_plan().model_copy(update={"sweep_id": "made_up-20260103-000000-0000"})
    with caplog.at_level(logging.WARNING, logger=sweeps.__name__):
        for _ in range(2):
            assert compare_with_last(plan)[0] == GOOD and expected_seconds(plan) == {plan.trials[0].cell: 60.0}
    assert [record.getMessage().startswith(f"left out: {path}") for record in caplog.records] == [True], (
        "one line, however often it is read"
    )


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_result_is_a_row_of_its_sweep(both: tuple[SweepStore, SweepStore], kind: str) -> None:
    _, new = both
    path = new.trial_dir(new.load_plan().trials[0].key) / "result.json"
    damage(path, kind)
    code, text = said("list")
    assert code == 0 and "damaged" in text and "1 unreadable" in text
    code, text = said("show", GOOD, "--json")
    assert code == 1 and str(path) in text and '"outcome": "unreadable"' in text
    (entry,) = states(new.load_plan())
    assert entry.state == "again" and str(path) in str(entry.why), "and it is measured anew"
    assert new.states(new.load_plan()) == {path.parent.name: None} and sweeps.exit_status(new.states(new.load_plan())) == 1
    plan = new.load_plan().model_copy(update={"sweep_id": "made_up-20260103-000000-0000"})
    assert compare_with_last(plan)[0] == BAD and expected_seconds(plan) == {plan.trials[0].cell: 60.0}


def test_a_missing_trial_json_is_named_with_what_writes_it_again(both: tuple[SweepStore, SweepStore]) -> None:
    _, new = both
    plan = new.load_plan()
    path = new.trial_dir(plan.trials[0].key) / "trial.json"
    assert said("show", GOOD)[0] == 0
    before = path.read_bytes()
    path.unlink()
    line = f"{path} is missing; `sweep resume {GOOD}` writes it again, and measures nothing anew for that"
    code, text = said("show", GOOD)
    assert code == 1 and line in text
    code, text = said("show", GOOD, "--json")
    assert code == 1 and json.loads(text)["damaged"] == [line]
    new.tell_trials(plan)
    assert path.read_bytes() == before and said("show", GOOD)[0] == 0


def test_a_trial_that_has_not_begun_lacks_nothing(both: tuple[SweepStore, SweepStore]) -> None:
    """A published sweep has no folders of trials, and a plan that is being written has no trial.json yet."""
    _, new = both
    plan = new.load_plan()
    folder = new.trial_dir(plan.trials[0].key)
    for name in ("trial.json", "result.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "journal.jsonl").touch()
    assert new.untold(plan)[0].startswith(f"{folder / 'trial.json'} is missing")
    (folder / "journal.jsonl").unlink()
    assert new.untold(plan) == [] and said("show", GOOD)[0] == 0
    shutil.rmtree(new.dir / "trials")
    assert new.untold(plan) == [] and said("show", GOOD)[0] == 0


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_only_tells_of_a_sweep_never_stops_a_command(both: tuple[SweepStore, SweepStore], kind: str) -> None:
    _, new = both
    for name in ("status.json", ".holder.json", "flow_runs.txt", ".stop", "known_spread.json", "certificates.json"):
        damage(new.dir / name, kind)
    for words in (("list",), ("show", GOOD), ("show", GOOD, "--json")):
        code, text = said(*words)
        assert code == 0, text
    assert new.flow_runs() is not None and not new.is_held()


@pytest.mark.parametrize("kind", ["high bit", "a folder"])
@pytest.mark.parametrize("name", ["journal.jsonl", "result.json", "device_state.jsonl", "trial.json", "launch.json"])
def test_a_report_is_of_the_trials_that_are_whole_and_names_the_others(kind: str, name: str) -> None:
    folder = make_sweep(runs_root(), [Fake({"pool": "cpu", "model": "base", "dataloader_workers": number}) for number in (0, 1)])
    path = trial_dirs(folder)[0] / name
    damage(path, kind)
    if kind == "high bit" and name.endswith(".jsonl"):
        path.write_bytes(path.read_bytes() + b"\n")  # a whole line: of an early trial nothing tells of others
    code, text = said("report", folder.name)
    assert code == 1 and f"left out: {path}" in text, text
    page = (folder / "report.md").read_text().replace("\\", "")
    assert "1 trial of 2 left out of every figure, since files are damaged (cpu · base · MP-0 · #1: " in page and str(path) in page
    assert "MP-1: 100.1 samples/s" in page, "the other trial's figures stand"


@pytest.mark.parametrize("words", [("export", GOOD, "--format", "csv", "--out"), ("compare", BAD, GOOD), ("compare", GOOD, BAD, "--json")])
def test_what_is_made_without_a_damaged_trial_says_so_and_ends_with_1(words: tuple[str, ...], tmp_path: Path) -> None:
    fake = Fake({"pool": "cpu", "model": "base", "dataloader_workers": 0}, repeats=2)
    folders = [make_sweep(runs_root(), [fake], sweep_id=sweep_id) for sweep_id in (BAD, GOOD)]
    command = (*words, str(tmp_path / "out")) if words[0] == "export" else words
    assert CliRunner().invoke(app, list(command)).exit_code == 0
    path = trial_dirs(folders[1])[0] / "result.json"
    path.write_bytes(path.read_bytes()[:100])
    done = CliRunner().invoke(app, list(command))
    assert done.exit_code == 1 and f"left out: {path}" in done.stderr.replace("\n", ""), done.output
    if words[0] == "export":
        assert {one.name for one in (tmp_path / "out").iterdir()} == {"cells.csv", "trials.csv", "steps.csv"}
    elif "--json" in words:
        assert [str(path) in one for one in json.loads(done.stdout)["damaged"]] == [True]
    else:
        assert "1 trial left out of every figure, since files are damaged" in (folders[1] / "comparison.md").read_text()


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_night_is_left_out_of_the_others(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    nights = NightStore("small")
    for date in ("2026-11-20", "2026-11-21"):
        nights.claim(date, 60.0)
    path = nights.folder("2026-11-20") / "night.json"
    damage(path, kind)
    assert nights.dates() == ["2026-11-20", "2026-11-21"] and night_names() == ["small"]
    with caplog.at_level(logging.WARNING, logger=sweeps.__name__):
        assert [night.date for night in nights.all()] == ["2026-11-21"]
    assert [record.getMessage().startswith(f"left out: {path}") for record in caplog.records] == [True]
    code, text = said("nights")
    assert code == 0 and str(path) in text and "2026-11-21" in text
    code, text = said("nights", "small", "--date", "2026-11-20")
    assert code == 1 and str(path) in text
