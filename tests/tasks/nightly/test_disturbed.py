"""Trials that other work disturbed: left out where a night has others, and no verdict rests on them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from experiments.regression.definition import DEFAULT_METRICS
from experiments.stats.verdict import Verdict
from tasks.nightly.comparison import counted, counted_tonight
from tasks.nightly.history import History, Measured
from tasks.nightly.store import CellVerdict, NodeState
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import DATES, DEFINITION, QUIET, TONIGHT, cell, night, now, past, trials

WORK = "other processes used 40 % of all cores' time (limit 10 %)"


def slowed(name: str, dates: list[str], rounds: set[int], *, role: str = "history", rate: float = 80.0) -> list[Measured]:
    """Trials at 100 samples/s; those of these rounds disturbed, at `rate`."""
    made = trials(name, dates, role=role, noise=QUIET)
    return [
        replace(trial, disturbed=WORK, values={**trial.values, "throughput": rate}) if trial.round in rounds else trial for trial in made
    ]


def judged(tonight: Mapping[str, set[int]], before: History | None = None, *names: str) -> tuple[dict[str, CellVerdict], list[NodeState]]:
    """The verdicts by name with these rounds of tonight disturbed, of cells `names` (`one`) and of the canary."""
    measured = History()
    names = names or ("one",)
    for name in ("canary", *names):
        measured.add(slowed(name, [TONIGHT], tonight.get(name, set()), role="canary" if name == "canary" else "history"))
    cells = [cell("canary", "canary"), *map(cell, names)]
    found, nodes = NightVerdicts(DEFINITION, night(cells=cells), before or quiet_past(), [], []).judgements(measured)
    return {item.name: item for item in found}, nodes


def quiet_past(rounds: Mapping[str, set[int]] | None = None) -> History:
    """Nights at 100 samples/s, with these rounds of each cell disturbed."""
    history = History()
    for name in ("one", "two", "canary"):
        history.add(slowed(name, DATES, (rounds or {}).get(name, set()), role="canary" if name == "canary" else "history"))
    return history


@pytest.mark.parametrize(
    ("rounds", "repeats", "ratio", "verdict"),
    [(set(), 3, 1.0, Verdict.SAME), ({1, 2}, 1, 1.0, Verdict.SAME), ({1, 2, 3}, 3, 0.8, Verdict.UNDECIDED)],
)
def test_disturbed_trials_count_only_where_a_cell_has_no_others_and_decide_nothing(
    rounds: set[int], repeats: int, ratio: float, verdict: Verdict
) -> None:
    one = judged({"one": rounds})[0]["one"]
    assert (one.repeats, one.verdict, one.ratio) == (repeats, verdict, pytest.approx(ratio, abs=0.001))
    alone = len(rounds) == 3
    assert (one.why, one.where, one.alarm_since) == (f"every trial was disturbed: {WORK}" if alone else None, None, None)
    assert one.looked is (Verdict.SLOWER if alone else None), "pairs may decide what disturbed trials cannot"


def test_a_disturbed_cell_has_no_part_in_the_false_discovery_rate_of_the_others() -> None:
    found, _ = judged({"one": {1, 2, 3}}, None, "one", "two")
    assert found["one"].q_value == 1.0
    assert found["one"].p_value is not None and found["one"].p_value < 1e-9
    assert found["two"].q_value == 1.0 and found["two"].verdict is Verdict.SAME


def test_a_past_night_counts_by_its_undisturbed_trials_and_not_at_all_without_one() -> None:
    one = judged({}, quiet_past({"one": {1, 2}}))[0]["one"]
    assert (one.verdict, one.baseline, one.ratio) == (Verdict.SAME, DATES, pytest.approx(1.0, abs=0.001))
    before = quiet_past()
    for date in DATES[4:]:
        before.cells["id-one", "history"][date] = slowed("one", [date], {1, 2, 3})
    one = judged({}, before)[0]["one"]
    assert (one.baseline, one.needs, one.why) == (DATES[:4], 5, "4 of the 5 nights that a baseline needs")


def test_a_canary_that_was_disturbed_takes_nothing_off_and_says_nothing_of_its_node() -> None:
    found, [node] = judged({"canary": {1, 2, 3}})
    assert (node.verdict, node.note, node.ratio) == (
        Verdict.UNDECIDED,
        f"every trial of the canary was disturbed: {WORK}",
        pytest.approx(0.8, abs=0.001),
    )
    assert (found["one"].verdict, found["one"].share) == (Verdict.SAME, 0.0)
    found, [node] = judged({"canary": {1, 2}})
    assert (node.verdict, node.note, found["one"].verdict) == (Verdict.SAME, None, Verdict.SAME)
    _, [node] = judged({}, quiet_past({"canary": {2, 3}}))
    assert (node.verdict, node.ratio) == (Verdict.SAME, pytest.approx(1.0, abs=0.001))


def test_a_disturbed_night_neither_creeps_nor_is_paired_for_it() -> None:
    before, tonight = History(), History()
    for place, date in enumerate(DATES[:9]):
        before.add(trials("one", [date], rate=100.0 * 0.99**place, noise=QUIET))
    tonight.add(trials("one", [TONIGHT], rate=100.0 * 0.99**9, noise=QUIET))
    judge = NightVerdicts(DEFINITION, night(cells=[cell("one")]), before, [], [])
    assert len(judge.creep(tonight)) == 1
    touched = [replace(trial, disturbed=WORK) for trial in tonight.of("id-one")[TONIGHT]]
    tonight.cells["id-one", "history"][TONIGHT] = touched
    assert judge.creep(tonight) == [] and not judge.judgements(tonight)[0][0].crept


def test_what_else_ran_changes_no_loss() -> None:
    assert "final_loss" in DEFAULT_METRICS
    measured = [replace(trial, values={**trial.values, "final_loss": 2.0}) for trial in slowed("one", [TONIGHT], {1, 2})]
    assert [trial.round for trial in counted(measured, "final_loss")] == [1, 2, 3]
    assert [trial.round for trial in counted(measured, "throughput")] == [3]
    del measured[2].values["throughput"]  # type: ignore[attr-defined]
    assert [trial.round for trial in counted_tonight(measured, "throughput")] == [1, 2, 3], "what counts lacks the metric"


def test_disturbed_controls_are_undecided() -> None:
    tonight = now({"one": 100.0, "two": 100.0})
    for role in ("twin", "injected"):
        made = tonight.cells["id-canary", role][TONIGHT]
        tonight.cells["id-canary", role][TONIGHT] = [replace(trial, disturbed=WORK) for trial in made]
    found, _ = NightVerdicts(DEFINITION, night(), past(), [], []).judgements(tonight)
    assert [item.verdict for item in found if item.name == "canary"] == [Verdict.UNDECIDED] * 2
