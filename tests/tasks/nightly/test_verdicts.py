"""A night's verdicts from made-up histories: code or node, causes, baselines that a regression does not poison."""

from __future__ import annotations

import pytest

from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.history import History
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import DATES, DEFINITION, TONIGHT, cell, night, now, past, said, trials, verdicts_of


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
    tonight.cells["id-one", "history"] = now({"one": 92.0 * 0.9}).cells["id-one", "history"]
    one = verdicts_of(tonight)[0]["one", "history"]
    assert (one.verdict, one.where) == (Verdict.SLOWER, "code or node"), "nor what is beside the node"


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
    found, _, undecided = verdicts_of(tonight, before, definition=DEFINITION.model_copy(update={"pairs": []}))
    assert found["one", "history"].verdict is Verdict.UNDECIDED
    assert undecided == [("id-one", "history")]
    with_pairs = NightVerdicts(DEFINITION, night(), before, [], [])
    items, _ = with_pairs.judgements(tonight)
    assert with_pairs.undecided(items) == [], "pairs decide"
    refused = [item.model_copy(update={"not_paired": "made up"}) if item.name == "one" else item for item in items]
    assert with_pairs.undecided(refused) == [("id-one", "history")]


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


def test_changes_of_another_cell_or_metric_count_for_nothing() -> None:
    def change(cell: str, metric: str) -> Change:
        return Change(cell=cell, metric=metric, since=DATES[10], verdict=Verdict.SLOWER, accepted_on=DATES[12], by="me")

    others = [change("id-two", "throughput"), change("id-one", "final_loss")]
    found, _, _ = verdicts_of(now({"one": 100.0, "two": 100.0}), changes=others)
    assert found["one", "history"].baseline == DATES and found["two", "history"].baseline == DATES[10:]


def test_an_alarm_stays_open_over_a_night_that_measured_nothing_but_is_not_said_of_it() -> None:
    nights = [said(date, Verdict.SLOWER) for date in DATES[17:]]
    found, _, _ = verdicts_of(now({"two": 100.0}), nights=nights)
    one = found["one", "history"]
    assert (one.baseline, one.alarm_since, one.why) == (DATES[:17], None, "not measured tonight")


def test_the_node_has_no_part_in_a_metric_that_is_not_of_the_node() -> None:
    """The canary's memory grew as much as the cell's; that takes nothing off."""
    cells = [cell("canary", "canary", ("throughput", "peak_memory_bytes")), cell("one", metrics=("throughput", "peak_memory_bytes"))]
    tonight = History()
    for name, role in (("one", "history"), ("canary", "canary")):
        tonight.add(trials(name, [TONIGHT], role=role, memory=1.2 * 2**30))
    found = NightVerdicts(DEFINITION, night(cells=cells), past(), [], []).judgements(tonight)[0]
    memory = next(item for item in found if item.metric == "peak_memory_bytes")
    assert (memory.word, memory.where, memory.share, memory.ratio) == ("more", "code", 0.0, pytest.approx(1 / 1.2))
    alone = History()
    alone.add(trials("one", [TONIGHT], memory=1.2 * 2**30))
    found = NightVerdicts(DEFINITION, night(cells=cells), past(), [], []).judgements(alone)[0]
    assert next(item for item in found if item.metric == "peak_memory_bytes").where == "code", "it needs no canary"
    alone.add(trials("canary", [TONIGHT], role="canary", rate=80.0))
    found, [node] = NightVerdicts(DEFINITION, night(cells=cells), past(), [], []).judgements(alone)
    assert node.verdict is Verdict.SLOWER
    assert next(item for item in found if item.metric == "peak_memory_bytes").where == "code", "a slow node needs no more memory"


def test_only_trials_that_have_the_metric_count() -> None:
    tonight = History()
    tonight.add(trials("one", [TONIGHT], repeats=4, noise=0.0))
    del tonight.cells["id-one", "history"][TONIGHT][1].values["throughput"]  # type: ignore[attr-defined]
    [found] = NightVerdicts(DEFINITION, night(cells=[cell("one")]), past(), [], []).judgements(tonight)[0]
    assert (found.repeats, found.value) == (3, pytest.approx(100.0))
