"""A night's verdicts from made-up histories: code or node, causes, baselines that a regression does not poison."""

from __future__ import annotations

import pytest

from experiments.regression.definition import NightFile
from experiments.regression.history_segments import Change
from experiments.stats.sequential import interim_levels
from experiments.stats.verdict import Verdict
from tasks.nightly.history import History
from tasks.nightly.store import CellVerdict, Night
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import DATES, DEFINITION, TONIGHT, cell, night, now, past, trials

QUIET = 1e-4  # noise, so that little else shows


def verdicts_of(  # type: ignore[no-untyped-def]
    tonight: History,
    before: History | None = None,
    nights: list[Night] | None = None,
    changes: list[Change] | None = None,
    definition: NightFile = DEFINITION,
):
    verdicts = NightVerdicts(definition, night(), before or past(), nights or [], changes or [])
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


def said(date: str, verdict: Verdict, name: str = "one") -> Night:
    item = CellVerdict(
        cell=f"id-{name}", name=name, role="history", metric="throughput", verdict=verdict, word="w", minimum=0.03, repeats=3
    )
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


# --- how much history, how many repeats, how large a change


@pytest.mark.parametrize(("nights", "verdict"), [(4, Verdict.UNDECIDED), (5, Verdict.SLOWER), (6, Verdict.SLOWER)])
def test_the_fewest_nights_are_enough(nights: int, verdict: Verdict) -> None:
    found, nodes, _ = verdicts_of(now({"one": 50.0, "two": 100.0}), past(DATES[:nights]))
    assert found["one", "history"].verdict is verdict
    assert nodes[0].verdict is (Verdict.SAME if nights >= 5 else Verdict.UNDECIDED)
    assert nodes[0].note == (None if nights >= 5 else "4 of the 5 nights that a baseline needs")
    assert len(found["one", "history"].baseline) == nights
    if nights < 5:
        assert found["one", "history"].ratio is None and found["one", "history"].alarm_since is None
    else:
        assert found["one", "history"].alarm_since == TONIGHT


def test_the_baseline_is_of_the_last_nights_before_tonight() -> None:
    definition = DEFINITION.model_copy(update={"baseline_nights": 6})
    before = past()
    before.add(trials("one", ["2026-10-22"], rate=10.0))
    judge = NightVerdicts(definition, night(), before, [], [])
    found, nodes = judge.judgements(now({"one": 100.0, "two": 100.0}))
    assert next(item for item in found if item.name == "one").baseline == DATES[-6:]
    early = past(DATES[:10])
    early.cells["id-canary", "canary"].update(past(DATES[10:], dict.fromkeys(DATES, 0.5)).cells["id-canary", "canary"])
    [node] = NightVerdicts(definition, night(), early, [], []).judgements(now({"one": 100.0}))[1]
    assert node.ratio == pytest.approx(2.0, abs=0.02), "of the canary's last six nights"
    assert nodes[0].ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("repeats", "look"), [(2, 0), (3, 0), (4, 0), (5, 1), (7, 1), (8, 2), (9, 2)])
def test_a_cell_stands_at_the_latest_look_that_its_repeats_reached(repeats: int, look: int) -> None:
    """Alone in its night, a cell's q is p x alpha / level."""
    before, tonight = History(), History()
    before.add(trials("one", DATES, noise=0.01))
    tonight.add(trials("one", [TONIGHT], rate=97.0, noise=0.01, repeats=repeats, seed=4))
    judge = NightVerdicts(DEFINITION, night(cells=[cell("one")]), before, [], [])
    [found] = judge.judgements(tonight)[0]
    assert found.p_value is not None and found.q_value is not None and 0 < found.q_value < 1
    level = interim_levels([3, 5, 8], 0.01)[look]
    assert found.q_value == pytest.approx(found.p_value * 0.01 / level)
    assert found.repeats == repeats


@pytest.mark.parametrize(
    ("minimum", "rate", "verdict"), [(None, 95.0, Verdict.SLOWER), (0.1, 95.0, Verdict.SAME), (0.1, 85.0, Verdict.SLOWER)]
)
def test_a_cells_own_smallest_effect_counts(minimum: float | None, rate: float, verdict: Verdict) -> None:
    one = cell("one", minimum_effect={"throughput": minimum} if minimum else {})
    before, tonight = History(), History()
    before.add(trials("one", DATES, noise=QUIET))
    tonight.add(trials("one", [TONIGHT], rate=rate, noise=QUIET))
    [found] = NightVerdicts(DEFINITION, night(cells=[one]), before, [], []).judgements(tonight)[0]
    assert (found.verdict, found.minimum) == (verdict, minimum or 0.03)
    assert found.detectable == pytest.approx(1 - 1 / (1 + (minimum or 0.03)), abs=0.002), "a fall to that share of what it was"


def test_what_could_be_found_is_of_the_last_look() -> None:
    """The noise of a repeat is nearly all there is: with 72 repeats in place of 8 a third of it is left."""
    before, tonight = History(), History()
    for place, date in enumerate(DATES):
        before.add(trials("one", [date], noise=0.05, seed=place, repeats=8))
    tonight.add(trials("one", [TONIGHT], noise=0.05, repeats=3))
    one = cell("one", minimum_effect={"throughput": 0.001})
    found = []
    for looks in ([5, 8], [5, 72]):
        definition = DEFINITION.model_copy(update={"looks": looks})
        found.append(NightVerdicts(definition, night(cells=[one]), before, [], []).judgements(tonight)[0][0].detectable)
    few, many = found
    assert few is not None and many is not None and few > 1.8 * many


def test_what_a_judgement_holds() -> None:
    before, tonight = History(), History()
    before.add(trials("one", DATES, noise=QUIET))
    for place, rate in enumerate((90.0, 100.0, 40.0)):
        tonight.add(trials("one", [TONIGHT], rate=rate, noise=0.0, repeats=1, first=place + 1))
    one = cell("one", metrics=("throughput", "peak_memory_bytes"))
    rate, memory = NightVerdicts(DEFINITION, night(cells=[one]), before, [], []).judgements(tonight)[0]
    assert rate.value == pytest.approx(90.0), "of three repeats without the lowest and the highest"
    assert (memory.value, memory.verdict, memory.word, memory.where) == (pytest.approx(2.0**30), Verdict.SAME, "same", None)
    assert memory.low is not None and memory.high is not None and memory.ratio == pytest.approx(1.0)
    assert memory.detectable == pytest.approx(0.03, abs=0.003) and memory.detectable > 0.03, "a rise by that share"
    assert (memory.share, memory.alarm_since, memory.causes) == (0.0, None, [])


def test_a_change_for_the_better_has_its_word_causes_and_alarm() -> None:
    found, _, _ = verdicts_of(now({"one": 110.0, "two": 100.0}, facts={"torch": "2.14.0"}))
    one = found["one", "history"]
    assert (one.verdict, one.word, one.where, one.alarm_since) == (Verdict.FASTER, "faster", "code", TONIGHT)
    assert one.causes == ["torch 2.13.0 → 2.14.0"]
    slowed = now({})
    slowed.cells["id-canary", "injected"] = {TONIGHT: trials("canary", [TONIGHT], role="injected", rate=92.0, facts={"torch": "2.14.0"})}
    injected = verdicts_of(slowed)[0]["canary", "injected"]
    assert (injected.verdict, injected.causes) == (Verdict.SLOWER, []), "a probe has no causes"
    order = [("one", "history"), ("two", "history"), ("canary", "twin"), ("canary", "injected")]
    assert list(found) == order, "in the night's order"


def test_causes_are_against_the_last_night_of_the_baseline() -> None:
    before = History()
    before.add(trials("one", DATES[:10], noise=QUIET, facts={"torch": "2.12.0"}))
    before.add(trials("one", DATES[10:], noise=QUIET))
    tonight = History()
    tonight.add(trials("one", [TONIGHT], rate=90.0, noise=QUIET, facts={"torch": "2.12.0"}))
    [found] = NightVerdicts(DEFINITION, night(cells=[cell("one")]), before, [], []).judgements(tonight)[0]
    assert found.causes == ["torch 2.13.0 → 2.12.0"]


def test_the_probes_stand_against_the_twins_own_nights() -> None:
    before = past()
    del before.cells["id-canary", "twin"]
    before.add(trials("canary", DATES, role="twin", rate=50.0))
    tonight = History()
    for role, rate in (("canary", 100.0), ("twin", 50.0), ("injected", 50.0 / 1.08)):
        tonight.add(trials("canary", [TONIGHT], role=role, rate=rate))
    alarms = [said(date, Verdict.SLOWER, "canary") for date in DATES[10:]]  # of a cell with the identity that the probes have
    found, _, _ = verdicts_of(tonight, before, alarms)
    assert found["canary", "twin"].ratio == pytest.approx(1.0, abs=0.02)
    assert found["canary", "injected"].ratio == pytest.approx(1 / 1.08, abs=0.02)
    assert found["canary", "twin"].baseline == DATES, "an alarm of a cell is none of its probes"


def test_what_was_said_tonight_or_later_counts_for_nothing() -> None:
    later = [said(TONIGHT, Verdict.SLOWER), said("2026-10-25", Verdict.SLOWER)]
    found, _, _ = verdicts_of(now({"one": 100.0, "two": 100.0}), None, later)
    assert found["one", "history"].alarm_since is None and found["one", "history"].baseline == DATES


def test_why_nothing_can_be_said() -> None:
    def why(tonight: float, before: float) -> str | None:
        history, ran_now = History(), History()
        history.add(trials("one", DATES[:5], rate=before))  # exactly as many as a baseline needs
        ran_now.add(trials("one", [TONIGHT], rate=tonight))
        [found] = NightVerdicts(DEFINITION, night(cells=[cell("one")]), history, [], []).judgements(ran_now)[0]
        assert found.verdict is Verdict.UNDECIDED and found.ratio is None
        assert found.value == (pytest.approx(tonight, rel=0.02) if tonight else None)
        return found.why

    assert why(0.0, 100.0) == "not above 0: its ratio has no meaning"
    assert why(100.0, 0.0) == "its nights have no value of this metric"


def test_a_metric_besides_the_first_that_was_not_measured_is_left_out() -> None:
    one = cell("one", metrics=("throughput", "final_loss", "peak_memory_bytes"))
    judge = NightVerdicts(DEFINITION, night(cells=[one]), past(), [], [])
    assert [item.metric for item in judge.judgements(now({"one": 100.0}))[0]] == ["throughput", "peak_memory_bytes"]
    assert [(item.metric, item.why) for item in judge.judgements(now({}))[0]] == [("throughput", "not measured tonight")]


def test_only_what_the_first_metric_leaves_undecided_asks_for_repeats() -> None:
    one = cell("one", metrics=("peak_memory_bytes", "throughput"))
    before, tonight = History(), History()
    before.add(trials("one", DATES, noise=0.04))
    tonight.add(trials("one", [TONIGHT], rate=95.0, noise=0.04, seed=3))
    judge = NightVerdicts(DEFINITION, night(cells=[one]), before, [], [])
    found = judge.judgements(tonight)[0]
    assert [item.verdict for item in found] == [Verdict.SAME, Verdict.UNDECIDED]
    assert judge.undecided(found) == []


# --- creep


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


# --- what belongs to another cell, metric or night


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
