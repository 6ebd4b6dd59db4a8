"""A night's verdicts from made-up histories: code or node, causes, baselines that a regression does not poison."""

from __future__ import annotations

import pytest

from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.history import History
from tasks.nightly.store import CellVerdict, Night
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import DATES, DEFINITION, TONIGHT, cell, night, now, past, trials


def verdicts_of(tonight: History, before: History | None = None, nights: list[Night] | None = None, changes: list[Change] | None = None):  # type: ignore[no-untyped-def]
    verdicts = NightVerdicts(DEFINITION, night(), before or past(), nights or [], changes or [])
    found, nodes = verdicts.judgements(tonight)
    return {(item.name, item.role): item for item in found}, nodes, verdicts.undecided(found)


def test_nothing_changed_and_the_night_measured_itself() -> None:
    found, nodes, undecided = verdicts_of(now({"one": 100.0, "two": 100.0}))
    assert [found[name, "history"].verdict for name in ("one", "two")] == [Verdict.SAME] * 2
    assert (found["canary", "twin"].verdict, found["canary", "injected"].verdict) == (Verdict.SAME, Verdict.SLOWER)
    assert [node.verdict for node in nodes] == [Verdict.SAME]
    assert undecided == []
    assert 0.02 < found["one", "history"].detectable < 0.06
    assert found["one", "history"].baseline == DATES


def test_slower_code_is_named_with_what_changed_beside_it() -> None:
    facts = {"torch": "2.14.0", "git_commit": "b" * 40}
    found, _, _ = verdicts_of(now({"one": 92.0, "two": 100.0}, facts=facts))
    one = found["one", "history"]
    assert (one.verdict, one.word, one.where) == (Verdict.SLOWER, "slower", "code")
    assert one.ratio == pytest.approx(0.92, abs=0.01)
    assert one.causes == ["git commit aaaaaaaaaaaa → bbbbbbbbbbbb", "torch 2.13.0 → 2.14.0"]
    assert found["two", "history"].verdict is Verdict.SAME and found["two", "history"].causes == []


def test_a_slower_node_is_named_as_the_node() -> None:
    found, nodes, _ = verdicts_of(now({"one": 92.0, "two": 92.0}, canary=92.0))
    assert nodes[0].verdict is Verdict.SLOWER
    for name in ("one", "two"):
        item = found[name, "history"]
        assert (item.verdict, item.where) == (Verdict.SAME, "node")
        assert "node node-1 is" in (item.why or "")
    found, _, _ = verdicts_of(now({"one": 92.0 * 0.9, "two": 92.0}, canary=92.0))
    assert (found["one", "history"].verdict, found["one", "history"].where) == (Verdict.SLOWER, "code and node")


def test_a_canary_whose_own_software_changed_cannot_tell() -> None:
    tonight = now({"one": 92.0}, canary=92.0)
    old = tonight.cells["id-canary", "canary"][TONIGHT]
    tonight.cells["id-canary", "canary"][TONIGHT] = [
        type(trial)(trial.cell, trial.role, trial.date, trial.round, trial.host, trial.values, {**trial.facts, "torch": "2.14.0"})
        for trial in old
    ]
    found, nodes, _ = verdicts_of(tonight)
    assert "cannot be told apart" in (nodes[0].note or "")
    assert found["one", "history"].where == "code or node"


def test_too_little_history_decides_nothing_and_asks_for_no_repeats() -> None:
    found, nodes, undecided = verdicts_of(now({"one": 50.0}), past(DATES[:4]))
    assert (found["one", "history"].verdict, found["one", "history"].why) == (Verdict.UNDECIDED, "4 of the 5 nights that a baseline needs")
    assert undecided == [] and nodes[0].verdict is Verdict.UNDECIDED


def test_noise_leaves_a_cell_undecided_and_open_for_more_repeats() -> None:
    before = past()
    before.cells.pop(("id-one", "history"))
    before.add(trials("one", DATES, noise=0.04))
    tonight = now({"two": 100.0})
    tonight.add(trials("one", [TONIGHT], rate=95.0, noise=0.04, seed=3))
    found, _, undecided = verdicts_of(tonight, before)
    assert found["one", "history"].verdict is Verdict.UNDECIDED
    assert undecided == [("id-one", "history")]


def test_a_cell_that_was_not_measured_says_so() -> None:
    found, _, _ = verdicts_of(now({"two": 100.0}))
    assert (found["one", "history"].verdict, found["one", "history"].why) == (Verdict.UNDECIDED, "not measured tonight")


def test_other_metrics_have_their_own_direction_and_words() -> None:
    verdicts = NightVerdicts(DEFINITION, night(cells=[cell("one", metrics=("throughput", "peak_memory_bytes"))]), past(), [], [])
    tonight = History()
    tonight.add(trials("one", [TONIGHT]))
    for date in tonight.cells.values():
        for trial in date[TONIGHT]:
            trial.values["peak_memory_bytes"] = 1.2 * 2**30  # type: ignore[index]
    found, _ = verdicts.judgements(tonight)
    memory = next(item for item in found if item.metric == "peak_memory_bytes")
    assert (memory.verdict, memory.word, memory.where) == (Verdict.SLOWER, "more", "code")
    assert memory.ratio == pytest.approx(1 / 1.2, abs=1e-6)


def test_what_creeps_by_less_than_a_night_can_see_is_said() -> None:
    before = past()
    before.cells.pop(("id-one", "history"))
    for number, date in enumerate(DATES):
        before.add(trials("one", [date], rate=100.0 * 0.997**number, seed=number))
    tonight = now({"one": 100.0 * 0.997 ** len(DATES), "two": 100.0})
    verdicts = NightVerdicts(DEFINITION, night(), before, [], [])
    assert next(item for item in verdicts.judgements(tonight)[0] if item.name == "one").verdict is not Verdict.SLOWER
    [said] = verdicts.creep(tonight)
    assert said.startswith("one: throughput crept: its last 5 nights are") and "since 2026-10-01" in said
    assert NightVerdicts(DEFINITION, night(), past(), [], []).creep(now({"one": 100.0, "two": 100.0})) == []


def said(date: str, verdict: Verdict) -> Night:
    item = CellVerdict(cell="id-one", name="one", role="history", metric="throughput", verdict=verdict, word="w", minimum=0.03, repeats=3)
    return night(date=date, judgements=[item])


def test_an_open_alarm_does_not_become_the_norm_and_an_accepted_one_does() -> None:
    before = past(DATES[:10])
    before.cells.pop(("id-one", "history"))
    before.add(trials("one", DATES[:10]))
    before.add(trials("one", DATES[10:], rate=92.0))
    before.add(trials("canary", DATES[10:], role="canary"))
    nights = [said(date, Verdict.SLOWER) for date in DATES[10:]]
    found, _, _ = verdicts_of(now({"one": 92.0, "two": 100.0}), before, nights)
    assert (found["one", "history"].verdict, found["one", "history"].alarm_since) == (Verdict.SLOWER, DATES[10])
    assert found["one", "history"].baseline == DATES[:10]
    change = Change(cell="id-one", metric="throughput", since=DATES[10], verdict=Verdict.SLOWER, accepted_on=DATES[-1], by="me")
    found, _, _ = verdicts_of(now({"one": 92.0, "two": 100.0}), before, nights, [change])
    assert (found["one", "history"].verdict, found["one", "history"].baseline) == (Verdict.SAME, DATES[10:])
