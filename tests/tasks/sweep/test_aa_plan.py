"""A/A sweeps: which cell, which trials in which order, and when no more pairs start."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.errors import ConfigError
from experiments.trial import Outcome, digest
from tasks.sweep import plan as planning
from tasks.sweep.aa_plan import one_more_pair, plan_aa
from tasks.sweep.plan import compare_with_last, expected_seconds, renew
from tasks.sweep.plan import make_plan as plan_of_request
from tasks.sweep.store import AaSettings, Plan, Request, SweepStore, read_plan
from tests.tasks.plan_support import make_result

SYNTHETIC = Request(suite="synthetic", profile="full")


@pytest.fixture(autouse=True)
def clean_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "git_state", lambda: {"commit": "abc", "dirty": False})


def planned(**options: Any) -> Plan:
    return plan_aa(SYNTHETIC, **options)


def saved(plan: Plan, *ended: Outcome, seconds: float = 60.0) -> SweepStore:
    """The plan on disk; the first trials have ended so."""
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    for trial, outcome in zip(plan.trials, ended, strict=False):
        store.save_result(make_result(trial, outcome, started_at=1.7e9, finished_at=1.7e9 + seconds))
    return store


def test_twins_run_in_turns_and_every_second_pair_backwards() -> None:
    plan = planned(pairs=4)
    order = [(trial.axes["twin"], trial.repeat) for trial in plan.trials]
    assert order == [("A", 1), ("B", 1), ("B", 2), ("A", 2), ("A", 3), ("B", 3), ("B", 4), ("A", 4)]
    assert [trial.index for trial in plan.trials] == list(range(8))
    assert len({trial.key for trial in plan.trials}) == 8
    assert plan.aa == AaSettings(pairs=4)


def test_twins_are_two_cells_with_one_set_of_parameters() -> None:
    plan = planned(pairs=3)
    a, b = plan.trials[:2]
    assert a.parameters == b.parameters and "twin" not in a.parameters
    assert a.cell != b.cell and {trial.cell for trial in plan.trials} == {a.cell, b.cell}
    assert (a.labels, b.labels) == ({"aa.twin": "A"}, {"aa.twin": "B"})
    assert a.name == "cpu · fp32 · width 64 · A · #1"
    assert plan.labels == {"sweep.aa": "true"}


@pytest.mark.parametrize(
    ("options", "pairs", "trials"), [({}, 20, 40), ({"pairs": 3}, 3, 6), ({"minutes": 5}, 1000, 2), ({"minutes": 5, "pairs": 7}, 7, 2)]
)
def test_how_many_pairs(options: dict[str, Any], pairs: int, trials: int) -> None:
    plan = planned(**options)
    assert plan.aa == AaSettings(pairs=pairs, minutes=options.get("minutes"))
    assert (len(plan.trials), plan.suite.repeats) == (trials, pairs)


def test_the_cell_is_the_suites_baseline_else_the_first_that_is_left() -> None:
    def width(**request: Any) -> Any:
        plan = plan_aa(SYNTHETIC.model_copy(update=request), pairs=1)
        return {trial.parameters["width"] for trial in plan.trials}

    assert width() == {64}
    assert width(profile="smoke") == {128}
    assert width(only={"width": [256]}) == {256}
    assert width(set={"width": 512}) == {512}
    with pytest.raises(ConfigError):
        width(only={"width": [3]})


def test_the_report_compares_b_with_a() -> None:
    suite = planned(pairs=2).suite
    assert suite.baseline == {"twin": "A"}
    assert (suite.report.columns, suite.report.rows, suite.report.metric) == ("twin", ["pool", "precision"], "throughput")
    assert (suite.limit, planned(pairs=1000).suite.limit) == (2000, 2000)
    inference = plan_aa(Request(suite="winoground", profile="smoke"), pairs=1).suite.report
    assert (inference.metric, inference.figures, inference.published) == ("throughput", [], None), "a score has no ratio"
    stability = plan_aa(Request(suite="clip_stability", profile="smoke"), pairs=1).suite
    assert (stability.report.metric, stability.repeats_are_seeds) == ("throughput", False), "twins learn the same"


@pytest.mark.parametrize(
    ("options", "tail"),
    [
        ({}, ""),
        ({"pairs": 3}, " --pairs 3"),
        ({"minutes": 2.5}, " --minutes 2.5"),
        ({"pairs": 9, "minutes": 2.5}, " --pairs 9 --minutes 2.5"),
    ],
)
def test_the_command_asks_for_the_same_again(options: dict[str, Any], tail: str) -> None:
    request = SYNTHETIC.model_copy(update={"set": {"steps": 50}, "only": {"width": [256]}, "pools": ["cpu"]})
    assert plan_aa(request, **options).command == f"sweep aa synthetic --profile full --pool cpu --set steps=50 --only width=256{tail}"


def test_an_aa_plan_is_read_back_and_renewed() -> None:
    plan = planned(pairs=2)
    store = saved(plan)
    assert read_plan(store.dir / "plan.json") == plan
    again = renew(plan)
    assert (again.aa, [trial.key for trial in again.trials]) == (plan.aa, [trial.key for trial in plan.trials])


def test_another_plan_takes_no_trial_of_an_aa_sweep_for_its_own() -> None:
    plan = planned(pairs=1)
    saved(plan, Outcome.OK, Outcome.OK)
    other, _ = plan_of_request(SYNTHETIC)
    against, states = compare_with_last(other)
    assert against is None and {entry.state for entry in states} == {"to do"}
    assert expected_seconds(planned(pairs=1)) == dict.fromkeys([trial.cell for trial in plan.trials], 60.0), "its twins are known again"


# --- as many pairs as there is time for


def test_pairs_are_added_while_there_is_time() -> None:
    plan = planned(minutes=2, pairs=3)
    store = saved(plan, Outcome.OK, Outcome.OK)
    more = one_more_pair(store, plan, 119.9)
    assert more is not None and [(trial.axes["twin"], trial.repeat, trial.index) for trial in more.trials[2:]] == [("B", 2, 2), ("A", 2, 3)]
    assert more.trials[:2] == plan.trials
    assert one_more_pair(store, plan, 120.0) is None
    third = one_more_pair(store, more, 0.0)
    assert third is not None and [(trial.axes["twin"], trial.repeat) for trial in third.trials[4:]] == [("A", 3), ("B", 3)]
    assert one_more_pair(store, third, 0.0) is None, "all three pairs are planned"


def test_a_plan_with_time_is_the_plan_without_as_far_as_it_goes() -> None:
    plan = planned(minutes=2, pairs=3)
    store = saved(plan, Outcome.OK)
    while (more := one_more_pair(store, plan, 0.0)) is not None:
        plan = more
    parts = [{**trial.key_parts, "sweep": ""} for trial in plan.trials]
    assert parts == [{**trial.key_parts, "sweep": ""} for trial in planned(pairs=3).trials]
    assert digest(parts) != digest(parts[::-1])


@pytest.mark.parametrize("options", [{"pairs": 2}, {"minutes": 2}])
def test_no_pair_is_added_where_all_are_planned_or_none_runs(options: dict[str, Any]) -> None:
    plan = planned(**options)
    outcome = Outcome.OK if "pairs" in options else Outcome.UNSUPPORTED
    assert one_more_pair(saved(plan, outcome, outcome), plan, 0.0) is None
