"""First nights: how far the record is and when verdicts begin, in every place that tells of a night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from experiments.regression.definition import METRICS
from experiments.stats.verdict import Verdict
from flows.cli import show_night
from tasks.nightly.history import History
from tasks.nightly.recording import judged, recorded, records_only
from tasks.nightly.report import headline, markdown, message, verdict_table
from tasks.nightly.store import CellVerdict, Dropped, Night, NightStore
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import CELLS, DATES, DEFINITION, TONIGHT, cell, night, now, past, trials

BUSY = "other processes used 70 % of the CPU (limit 10 %)"
FIRST = f"made-up {TONIGHT}: Night 1 of 5: 2 cells recorded; verdicts begin with night 6. Nothing to do"


def judged_night(before: History, tonight: History | None = None) -> Night:
    """A night with the verdicts that these histories give."""
    items, nodes = NightVerdicts(DEFINITION, night(), before, [], []).judgements(tonight or now({"one": 100.0, "two": 100.0}))
    return night(judgements=items, nodes=nodes, closed_at=1.8e9)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (0, ["Night 1 of 5: 2 cells recorded; verdicts begin with night 6"]),
        (4, ["Night 5 of 5: 2 cells recorded; verdicts begin with night 6"]),
        (5, []),
    ],
)
def test_the_nights_are_counted_until_the_baseline_has_enough(before: int, said: list[str]) -> None:
    found = judged_night(past(DATES[:before]))
    assert recorded(found) == said and records_only(found) is bool(said)
    assert {item.needs for item in found.cell_verdicts} == ({5} if said else {None})
    assert len(judged(found)) == (0 if said else 2)


def test_a_first_night_is_one_sentence_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    found = judged_night(History())
    assert headline(found) == FIRST and verdict_table(found).rows == []
    text = markdown(found, [found], [])
    assert text.startswith(f"# {FIRST}\n") and "undecided | " not in text.split("## Nodes")[0] and "How far to trust" not in text
    assert message(found, [found], [], []) == f"{FIRST}\n"
    store, page = NightStore("made-up"), Console(file=StringIO(), width=200)
    store.folder(TONIGHT).mkdir(parents=True)
    store.save(found)
    show_night.show_night(page, store, found)
    assert page.file.getvalue() == f"{FIRST}.\n"  # type: ignore[attr-defined]
    (row,) = show_night.night_rows()
    assert (row["state"], row["verdicts"]) == ("recorded", {"recorded": 2})


def test_a_cell_that_is_new_is_named_beside_those_that_are_judged() -> None:
    before = past()
    before.cells.pop(("id-two", "history"))
    found = judged_night(before)
    assert not records_only(found)
    assert recorded(found) == ["Night 1 of 5: 1 cell recorded (two); verdicts begin with night 6"]
    assert headline(found) == f"made-up {TONIGHT}: 1 cell the same; night 1 of 5: 1 cell recorded (two); verdicts begin with night 6"
    assert [row[0] for row in verdict_table(found).rows] == ["one"]
    page = Console(file=StringIO(), width=200)
    show_night.show_night(page, NightStore("made-up"), found)
    assert "Night 1 of 5: 1 cell recorded (two)" in page.file.getvalue()  # type: ignore[attr-defined]


def disturbed(history: History, dates: Sequence[str]) -> History:
    """The same, where other work disturbed every trial of these dates."""
    return History(
        {
            key: {date: [replace(one, disturbed=BUSY if date in dates else None) for one in trials] for date, trials in nights.items()}
            for key, nights in history.cells.items()
        }
    )


def test_a_night_that_does_not_count_is_none_of_those_that_a_baseline_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    tonight = disturbed(now({"one": 100.0, "two": 100.0}), [TONIGHT])
    found = judged_night(disturbed(past(DATES[:4]), DATES[1:3]), tonight)
    said = f"Not counted: 2 cells, since other work disturbed every trial ({BUSY}); 2 of the 5 nights that verdicts need so far"
    assert recorded(found) == [said] and headline(found) == f"made-up {TONIGHT}: {said}", "there is something to do"
    store = NightStore("made-up")
    store.folder(TONIGHT).mkdir(parents=True)
    store.save(found)
    (row,) = show_night.night_rows()
    assert (row["state"], row["verdicts"]) == ("recorded", {"not counted": 2})


def test_earlier_nights_that_did_not_count_are_named() -> None:
    found = judged_night(disturbed(past(DATES[:4]), DATES[1:3]))
    assert recorded(found) == [
        "Night 3 of 5 (2 earlier nights not counted: other work disturbed every trial): 2 cells recorded; verdicts begin with night 6"
    ]
    assert headline(found).endswith(". Nothing to do")


def test_what_was_missed_is_something_to_do() -> None:
    found = judged_night(History()).model_copy(update={"missed": [Dropped(cell="id-x", name="x", why="crashed")]})
    assert headline(found).endswith("verdicts begin with night 6; 1 cell missed")


def test_what_was_not_measured_tonight_is_not_called_recorded() -> None:
    found = judged_night(History(), now({"one": 100.0}))
    assert records_only(found)
    assert recorded(found) == ["Night 1 of 5: 1 cell recorded; verdicts begin with night 6"]


def test_an_early_night_has_its_table_as_it_was() -> None:
    item = CellVerdict(
        cell="c", name="c", role="history", metric=next(iter(METRICS)), verdict=Verdict.UNDECIDED, word="undecided", minimum=0.03, repeats=3
    )
    found = night(judgements=[item], cells=[*CELLS, cell("c")])
    assert recorded(found) == [] and not records_only(found) and len(verdict_table(found).rows) == 1
    assert trials("one", [TONIGHT], repeats=1)[0].date == TONIGHT
