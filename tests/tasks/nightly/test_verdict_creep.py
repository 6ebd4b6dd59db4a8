"""What creeps by less than a night can see: said from enough nights on, and not of the node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.regression.definition import NightFile
from experiments.stats.verdict import Verdict
from tasks.nightly.good_commit import Refused
from tasks.nightly.history import History
from tasks.nightly.pairing import Pairing
from tasks.nightly.verdicts import NightVerdicts
from tasks.sweep.store import SweepStore
from tests.tasks.nightly.night_support import DATES, DEFINITION, QUIET, TONIGHT, cell, night, now, past, trials


def test_what_creeps_by_less_than_a_night_can_see_is_said() -> None:
    before = past()
    before.cells.pop(("id-one", "history"))
    for number, date in enumerate(DATES):
        before.add(trials("one", [date], rate=100.0 * 0.997**number, seed=number))
    tonight = now({"one": 100.0 * 0.997 ** len(DATES), "two": 100.0})
    verdicts = NightVerdicts(DEFINITION, night(), before, [], [])
    assert next(item for item in verdicts.judgements(tonight)[0] if item.name == "one").verdict is not Verdict.SLOWER
    [said] = verdicts.creep(tonight)
    assert said.startswith("one: throughput crept: it is 5.") and "by a line through its 21 nights since 2026-10-01" in said
    assert NightVerdicts(DEFINITION, night(), past(), [], []).creep(now({"one": 100.0, "two": 100.0})) == []


def test_what_creeps_upwards_is_worse_by_what_it_gained() -> None:
    """Of twice the memory that is 100 %, not the 50 % by which a rate of half is worse."""
    before, tonight = History(), History()
    for place, date in enumerate([*DATES, TONIGHT]):
        (before if date < TONIGHT else tonight).add(trials("one", [date], memory=2.0 ** (30 + place / 20)))
    judge = NightVerdicts(DEFINITION, night(cells=[cell("one", metrics=("peak_memory_bytes",))]), before, [], [])
    [said] = judge.creep(tonight)
    assert said.startswith("one: peak_memory_bytes crept: it is 100.0% worse than at first, ")


def test_a_cell_without_a_single_value_does_not_creep() -> None:
    """Its first night ended without one: the night is closed all the same."""
    judge = NightVerdicts(DEFINITION, night(), past(), [], [])
    assert judge.creep(now({"two": 100.0})) == []
    judge = NightVerdicts(DEFINITION, night(), History(), [], [])
    assert judge.creep(now({"two": 100.0})) == []


@pytest.mark.parametrize(("nights", "due"), [(8, False), (9, True), (10, False), (13, False), (14, True)])
def test_a_suspected_creep_is_measured_in_pairs_one_night_in_five(nights: int, due: bool) -> None:
    """`nights` before tonight; what each lacks is below what the screen sees."""
    before = History()
    for number, date in enumerate(DATES[:nights]):
        before.add(trials("one", [date], rate=100.0 * 0.9982**number, seed=number, noise=QUIET))
    tonight = History()
    tonight.add(trials("one", [TONIGHT], rate=100.0 * 0.9982**nights, noise=QUIET))
    judge = NightVerdicts(DEFINITION, night(cells=[cell("one")]), before, [], [])
    [item] = judge.judgements(tonight)[0]
    assert (item.crept, item.looked) == ((True, Verdict.SLOWER) if due else (False, None))
    if due:
        good = judge.good_night(item, tonight)
        assert good is not None and good.date == DATES[0], "against the first commit of the segment"
    none = NightVerdicts(DEFINITION.model_copy(update={"pairs": []}), night(cells=[cell("one")]), before, [], [])
    assert not none.judgements(tonight)[0][0].crept


def test_a_creep_that_cannot_be_paired_stays_as_history_judged_it(tmp_path: Path) -> None:
    """Nothing looked changed tonight, so there is nothing to explain."""
    before, tonight = History(), History()
    for number, date in enumerate(DATES[:9]):
        before.add(trials("one", [date], rate=100.0 * 0.9982**number, seed=number, noise=QUIET))
    tonight.add(trials("one", [TONIGHT], rate=100.0 * 0.9982**9, noise=QUIET))
    [found] = NightVerdicts(DEFINITION, night(cells=[cell("one")]), before, [], []).judgements(tonight)[0]
    item = found.model_copy(update={"verdict": Verdict.UNDECIDED, "word": "undecided"})
    pairing = Pairing(DEFINITION, SweepStore("nightly-made-up-20261021-020000-0000", tmp_path))
    pairing.choices[item.cell] = Refused("no commit", None, False)
    assert item.crept and pairing.settled(item, SimpleNamespace(trials=[]), TONIGHT) == item  # type: ignore[arg-type]
    told = pairing.settled(item.model_copy(update={"crept": False}), SimpleNamespace(trials=[]), TONIGHT)  # type: ignore[arg-type]
    assert told.not_paired == "no commit"


def crept(nights: int, *, step: float = 0.997, role: str = "history", definition: NightFile = DEFINITION) -> list[str]:
    """What is said of a cell that loses `1 - step` a night, on so many nights, tonight included."""
    before, tonight = History(), History()
    dates = DATES[len(DATES) - nights + 1 :]
    for place, date in enumerate(dates):
        before.add(trials("one", [date], rate=100.0 * step**place, noise=QUIET, role=role))
    tonight.add(trials("one", [TONIGHT], rate=100.0 * step ** len(dates), noise=QUIET, role=role))
    return NightVerdicts(definition, night(cells=[cell("one", role)]), before, [], []).creep(tonight)  # type: ignore[arg-type]


def test_creep_is_said_from_ten_nights_on_with_what_would_be_seen() -> None:
    [text] = crept(15)
    how = "by a line through its 15 nights since 2026-10-07, which shows 3.0% and more with 95 % chance"
    assert text == f"one: throughput crept: it is 4.1% worse than at first, {how}."
    assert len(crept(11)) == 1 and crept(10) == [], "3.0 % and 2.7 %"
    assert len(crept(10, step=0.98)) == 1 and crept(9, step=0.98) == []
    short = DEFINITION.model_copy(update={"baseline_nights": 6})
    assert len(crept(20, definition=short)) == 1, "against all nights of the segment, not only the baseline's"


def test_creep_must_reach_what_matters_and_downwards() -> None:
    assert crept(20, step=0.9985) == [], "2 % in all"
    assert crept(20, step=1.003) == [], "it got better"
    assert crept(20, role="twin") == [], "a probe does not creep"


def test_a_creep_of_the_node_is_none_of_the_cell() -> None:
    before, tonight = History(), History()
    node = {date: 0.997**place for place, date in enumerate([*DATES, TONIGHT])}
    for name, role in (("one", "history"), ("canary", "canary")):
        before.add(trials(name, DATES, role=role, noise=QUIET, node=node))
        tonight.add(trials(name, [TONIGHT], role=role, noise=QUIET, node=node))
    cells = [cell("canary", "canary"), cell("one")]
    assert NightVerdicts(DEFINITION, night(cells=cells), before, [], []).creep(tonight) == []
    assert len(NightVerdicts(DEFINITION, night(cells=cells[1:]), before, [], []).creep(tonight)) == 1
