"""Nights on disk: one sweep for a date, changes recorded once, damage named; accepting; the report and its message."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiments.config.errors import DamagedFile
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.accept import accept_change, find_cell
from tasks.nightly.report import message, what_ran, write_night
from tasks.nightly.store import NightCode, NightStore, check_date
from tasks.nightly.verdicts import NightVerdicts
from tasks.sweep.store import StoreError
from tests.tasks.nightly.night_support import CELLS, DATES, DEFINITION, TONIGHT, night, now, past


def change(since: str = "2026-11-01") -> Change:
    return Change(cell="c", metric="throughput", since=since, verdict=Verdict.SLOWER, accepted_on=since, by="me")


def test_a_date_has_one_sweep_however_many_claim_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: NightStore("n", tmp_path).claim("2026-11-21", 60.0), range(16)))
    assert len({found.sweep_id for found, _ in claims}) == 1
    assert sum(opened for _, opened in claims) == 1
    other, opened = NightStore("n", tmp_path).claim("2026-11-22", 60.0)
    assert opened and other.sweep_id != claims[0][0].sweep_id
    assert NightStore("n", tmp_path).dates() == ["2026-11-21", "2026-11-22"]


def test_a_night_to_come_and_one_before_a_night_that_is_over_do_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.nightly.store.today", lambda: "2026-11-22")
    nights = NightStore("n", tmp_path)
    for free in ("2026-11-22", "2026-11-01"):
        nights.check_opens(free)
    with pytest.raises(StoreError, match=r"^--date 2026-11-23 is to come: today is 2026-11-22 \(UTC\); leave it out for today's night$"):
        nights.check_opens("2026-11-23")
    night, _ = nights.claim("2026-11-20", 60.0)
    nights.check_opens("2026-11-19")  # nothing is judged yet
    nights.claim("2026-11-18", 60.0)
    nights.save(night.model_copy(update={"closed_at": 1.0}))
    with pytest.raises(
        StoreError, match=r"^--date 2026-11-19 is before the night of 2026-11-20, which is over: the verdicts since rest on"
    ):
        nights.check_opens("2026-11-19")
    for goes_on in ("2026-11-18", "2026-11-20", "2026-11-21"):  # the first two have begun
        nights.check_opens(goes_on)
    with pytest.raises(StoreError, match="is not a date"):
        nights.check_opens("yesterday")


@pytest.mark.parametrize("wrong", ["2026-13-01", "21.11.2026", "2026-11-21T02:00", "../x", ""])
def test_what_is_no_date_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a date; write it as"):
        check_date(wrong)
    with pytest.raises(StoreError):
        NightStore("n", tmp_path).claim(wrong, 60.0)
    with pytest.raises(StoreError, match="is not the name"):
        NightStore("../n", tmp_path)


def test_changes_are_recorded_once_and_damage_is_named(tmp_path: Path) -> None:
    store = NightStore("n", tmp_path)
    assert store.changes() == []
    assert [store.accept(change()), store.accept(change()), store.accept(change("2026-11-05"))] == [True, False, True]
    assert [entry.since for entry in store.changes()] == ["2026-11-01", "2026-11-05"]
    path = tmp_path / "nightly" / "n" / "changes.jsonl"
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(DamagedFile, match=r"changes.jsonl, line 3, cell: is missing, and 5 more"):
        store.changes()
    (store.folder("2026-11-21")).mkdir()
    (store.folder("2026-11-21") / "night.json").write_text("{")
    with pytest.raises(DamagedFile, match=r"night\.json, line 1: is not JSON"):
        store.load("2026-11-21")


def written(tmp_path: Path, rates: dict[str, float]) -> tuple[NightStore, str, str, str]:
    """A judged night on disk: its store, Markdown, page and message."""
    store = NightStore("made-up", tmp_path)
    before, tonight = past(), now(rates)
    found, nodes = NightVerdicts(DEFINITION, night(), before, [], []).judgements(tonight)
    done = night(judgements=found, nodes=nodes)
    store.folder(TONIGHT).mkdir(parents=True)
    store.save(done)
    markdown, page = write_night(store, DEFINITION, done, before, tonight, [])
    text = message(done, [done], [], [("report", "file:///report.html")])
    return store, markdown.read_text(), page.read_text(), text


def test_the_report_says_what_is_slower_how_sure_and_how_far_to_trust_it(tmp_path: Path) -> None:
    store, markdown, page, message = written(tmp_path, {"one": 92.0, "two": 100.0})
    for text in (markdown, page, message):
        assert "REGRESSION: made-up 2026-10-21: 1 cell worse in throughput, 1 cell the same" in text
        assert "False alarms: 0 of 1 A/A pair so far (0.0 % to 97.5 %, 95 %)" in text
        assert "Injected slow-downs found: 1 of 1" in text
    assert "SLOWER: one, throughput -" in message and "report: file:///report.html" in message
    assert page.count("<svg") == 3 and "<script" not in page  # the two cells and the canary
    assert (store.folder(TONIGHT) / "figures" / "id-one-throughput.png").stat().st_size > 5000
    quiet = written(tmp_path / "quiet", {"one": 100.0, "two": 100.0})
    assert "REGRESSION" not in quiet[3] and quiet[3].startswith("made-up 2026-10-21: 2 cells the same")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, ""),
        (NightCode(), ""),
        (NightCode(commit="a" * 40, dirty=False, branch="main"), ", commit aaaaaaaaaaaa of branch main"),
        (NightCode(commit="a" * 40, dirty=True), ", commit aaaaaaaaaaaa with uncommitted changes"),
    ],
)
def test_the_report_says_which_code_ran_as_far_as_the_night_recorded_it(code: NightCode | None, said: str) -> None:
    assert what_ran(night(code=code)) == f"Sweep {night().sweep_id}{said}."


def test_the_page_says_by_which_rule_it_errs_how_often(tmp_path: Path) -> None:
    _, markdown, page, _ = written(tmp_path, {"one": 100.0, "two": 100.0})
    assert f"<footer>Sweep {night().sweep_id}. Chance of a false alarm of one cell in one night: 1 % where past nights judge" in page
    assert "1 % in each direction where pairs of commits do.</footer>" in page and markdown.endswith(f"Sweep {night().sweep_id}.\n")


def test_names_cannot_break_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.nightly.report._figures", lambda *_: [])
    evil = "<script>alert(1)</script> | **x**"
    cells = [cell.model_copy(update={"name": evil}) if cell.cell == "id-one" else cell for cell in CELLS]
    store, before, tonight = NightStore("made-up", tmp_path), past(), now({"one": 80.0})
    found, nodes = NightVerdicts(DEFINITION, night(cells=cells), before, [], []).judgements(tonight)
    done = night(cells=cells, judgements=found, nodes=nodes)
    store.folder(TONIGHT).mkdir(parents=True)
    store.save(done)
    markdown, page = write_night(store, DEFINITION, done, before, tonight, [])
    assert "<script" not in page.read_text() and "&lt;script&gt;" in page.read_text()
    assert "\\<script\\>" in markdown.read_text() and "\\*\\*x" in markdown.read_text()


def _no_mlflow() -> None:
    raise ConnectionError("made up")


def test_a_change_is_accepted_with_its_first_night_and_the_cell_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.setattr("tasks.nightly.accept.connect", _no_mlflow)
    store = NightStore("made-up", tmp_path)
    with pytest.raises(StoreError, match="no night of made-up was judged yet"):
        accept_change("made-up", "one", None, None, "")
    found, nodes = NightVerdicts(DEFINITION, night(), past(), [], []).judgements(now({"one": 92.0, "two": 100.0}))
    moved = [item.model_copy(update={"alarm_since": DATES[18]}) if item.name == "one" else item for item in found]
    store.folder(TONIGHT).mkdir(parents=True)
    store.save(night(judgements=moved, nodes=nodes))
    with pytest.raises(StoreError, match="nothing of two changed on 2026-10-21: throughput same"):
        accept_change("made-up", "two", None, None, "")
    with pytest.raises(StoreError, match="no cell of this nightly; name one of these"):
        accept_change("made-up", "three", None, None, "")
    with pytest.raises(StoreError, match=r"'latenzy' is no metric that made-up judges: throughput$"):
        accept_change("made-up", "one", "latenzy", None, "")
    lines = accept_change("made-up", "one", None, None, "worth it")
    assert lines[0] == f"one: throughput slower since {DATES[18]} is the new baseline"
    assert "recorded here, but not shown in MLflow" in lines[1]
    assert [(entry.since, entry.accepted_on, entry.note) for entry in store.changes()] == [(DATES[18], TONIGHT, "worth it")]
    assert "was accepted before" in accept_change("made-up", "one", None, None, "")[0]


def test_cells_are_found_by_words_or_id() -> None:
    cells = [cell for cell in CELLS if cell.role == "history"]
    assert find_cell(cells, "id-two").name == "two" and find_cell(cells, "ONE").name == "one"
    with pytest.raises(StoreError, match="more than one cell"):
        find_cell(cells, "o")


def test_without_mlflow_nothing_is_judged_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.nightly.history import HistoryError, past_nights

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(HistoryError, match="the past nights could not be read from MLflow"):
        past_nights("n", "nightly-n", "2026-11-21")
