"""Accepting a change: which nights' verdicts it settles."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.regression.history_segments import Change, baseline_nights, open_alarm
from experiments.stats.verdict import Verdict
from tasks.nightly.accept import accept_change
from tasks.nightly.store import CHANGED, NightStore, verdicts_of
from tests.tasks.nightly.night_support import DATES, TONIGHT, said


def _no_mlflow() -> None:
    raise ConnectionError("made up")


def _accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, date: str, *earlier: Change) -> list[Change]:
    """The changes after `sweep accept one --date` on the last five DATES: slower on the second and third, then not clear."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.setattr("tasks.nightly.accept.connect", _no_mlflow)
    store = NightStore("made-up", tmp_path)
    words = (Verdict.SAME, Verdict.SLOWER, Verdict.SLOWER, Verdict.UNDECIDED, Verdict.UNDECIDED)
    for known, word in zip(DATES[-5:], words, strict=True):
        done = said(known, word)
        [item] = done.judgements
        store.folder(known).mkdir(parents=True)
        store.save(
            done.model_copy(update={"judgements": [item.model_copy(update={"alarm_since": DATES[-4] if word in CHANGED else None})]})
        )
    for change in earlier:
        store.accept(change)
    accept_change("made-up", "one", None, date, "")
    return store.changes()


@pytest.mark.parametrize("date", [DATES[-4], DATES[-3]])
def test_accepting_an_earlier_night_settles_the_verdicts_of_all_nights_since(
    date: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = _accepted(tmp_path, monkeypatch, date)
    assert [(change.since, change.accepted_on) for change in changes] == [(DATES[-4], DATES[-1])]
    verdicts = verdicts_of(NightStore("made-up", tmp_path).all(), "id-one", "throughput")
    assert open_alarm(verdicts, changes, TONIGHT) == []
    assert baseline_nights(DATES, verdicts, changes, TONIGHT, 20) == DATES[-4:], "the new level"


def test_a_change_that_is_accepted_again_settles_the_nights_that_were_judged_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early = Change(cell="id-one", metric="throughput", since=DATES[-4], verdict=Verdict.SLOWER, accepted_on=DATES[-4], by="me")
    changes = _accepted(tmp_path, monkeypatch, DATES[-4], early)
    assert [(change.since, change.accepted_on) for change in changes] == [(DATES[-4], DATES[-1])]
    verdicts = verdicts_of(NightStore("made-up", tmp_path).all(), "id-one", "throughput")
    assert open_alarm(verdicts, [early], TONIGHT) == DATES[-3:] and open_alarm(verdicts, changes, TONIGHT) == []
    assert "was accepted before" in accept_change("made-up", "one", None, DATES[-4], "")[0]


def test_accepting_settles_no_night_of_a_later_segment_nor_minds_another_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = Change(cell="id-one", metric="throughput", since=DATES[-2], verdict=Verdict.FASTER, accepted_on=DATES[-2], by="me")
    others = [later.model_copy(update={"cell": "id-two"}), later.model_copy(update={"metric": "final_loss"})]
    changes = _accepted(tmp_path, monkeypatch, DATES[-4], *others, later.model_copy(update={"since": DATES[-4][:8] + "01"}), later)
    assert (changes[-1].since, changes[-1].accepted_on) == (DATES[-4], DATES[-3])
