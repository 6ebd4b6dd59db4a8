"""What a verdict of a night rests on: how much history, how many repeats, how large a change, against which nights."""

from __future__ import annotations

import pytest
from scipy import stats

from experiments.stats.interim_levels import interim_levels
from experiments.stats.verdict import Verdict
from tasks.nightly.history import History
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import DATES, DEFINITION, QUIET, TONIGHT, cell, night, now, past, said, trials, verdicts_of


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


def test_the_controls_do_not_loosen_the_false_discovery_rate_of_the_cells() -> None:
    """One cell of ten is as far off as chance makes one in a hundred. Both controls in its family would make its q 0.044."""
    names = [f"c{place}" for place in range(10)]
    before, tonight = History(), now({})
    for role in ("canary", "twin"):
        before.add(trials("canary", DATES, role=role, seed=len(role)))
    for place, name in enumerate(names):
        before.add(trials(name, DATES, noise=0.01, seed=place))
        tonight.add(trials(name, [TONIGHT], noise=0.01, rate=96.9 if place == 0 else 100.0, seed=50 + place))
    cells = [cell("canary", "canary"), *map(cell, names), cell("canary", "twin"), cell("canary", "injected")]
    one_look = DEFINITION.model_copy(update={"looks": []})
    found, _ = NightVerdicts(one_look, night(cells=cells), before, [], []).judgements(tonight)
    own = [item for item in found if item.role == "history"]
    assert [item.q_value for item in own] == pytest.approx(stats.false_discovery_control([item.p_value for item in own]))
    assert own[0].p_value == pytest.approx(0.0074, abs=1e-4)
    assert (own[0].q_value, own[0].verdict) == (pytest.approx(0.074, abs=1e-3), Verdict.UNDECIDED)
    controls = {item.role: item for item in found if item.role != "history"}
    for item in controls.values():
        assert item.q_value == pytest.approx(item.p_value), "each is decided apart, at its own level"
    assert (controls["twin"].verdict, controls["injected"].verdict) == (Verdict.SAME, Verdict.SLOWER)
