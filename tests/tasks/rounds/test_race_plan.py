"""Races: what the first round is, who runs in the next, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.errors import ConfigError
from experiments.trial import Outcome
from tasks.rounds import race_plan as module
from tasks.rounds.budget import with_budget
from tasks.rounds.growth import growth, round_note
from tasks.rounds.race_plan import one_more_heat, plan_race
from tasks.sweep import plan as planning
from tasks.sweep.constraints import Constraint
from tasks.sweep.plan import renew
from tasks.sweep.store import Plan, Request, SweepStore, read_plan
from tests.tasks.plan_support import make_result

TUNE = Request(suite="synthetic", profile="tune")
GPU = Request(suite="bridgetower", profile="tune")
LIMIT = Constraint(metric="peak_memory_bytes", sign="<=", limit=7e10)


@pytest.fixture(autouse=True)
def clean_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "git_state", lambda: {"commit": "abc", "dirty": False})


def planned(request: Request = TUNE, **options: Any) -> Plan:
    return plan_race(request, **{"metric": "throughput", "maximise": True, "budget_s": 3600.0, **options})


def ran(plan: Plan, rates: dict[int, float | Outcome], *, seconds: float = 10.0, apart: float = 0.001) -> SweepStore:
    """The plan on disk; each trial of a cell, by its place in the first round, ended with this rate or outcome, 10 s each.

    `apart`: by what share two trials of a round differ, times the round."""
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    places = {trial.cell: place for place, trial in enumerate(trial for trial in plan.trials if trial.repeat == 1)}
    for number, trial in enumerate(plan.trials):
        rate = rates.get(places[trial.cell], 50.0)
        ended = {"started_at": 1.7e9 + number * seconds, "finished_at": 1.7e9 + (number + 1) * seconds}
        if isinstance(rate, Outcome):
            store.save_result(make_result(trial, rate, reason="so it goes", **ended))
        else:
            store.save_result(make_result(trial, summary={"throughput": rate * (1 + apart * trial.repeat * (number % 3))}, **ended))
    return store


def test_the_first_round_is_every_setting_once() -> None:
    plan = planned(where=[LIMIT])
    assert len(plan.trials) == 12 and {trial.repeat for trial in plan.trials} == {1}
    race = plan.race
    assert race is not None
    assert (race.metric, race.direction, race.where, race.minimum, race.chance) == ("throughput", "maximise", [LIMIT], 0.02, 0.05)
    assert (race.references, race.seeds, plan.suite.report.metric, plan.labels) == ([], 0, "throughput", {"sweep.race": "throughput"})
    assert growth(plan) is one_more_heat and round_note(plan) == "round 1: 12 of 12 settings run"


def test_the_command_asks_for_the_same_again() -> None:
    request = TUNE.model_copy(update={"set": {"steps": 50}, "only": {"batch_size": [16, 32]}, "pools": ["cpu"]})
    plan = planned(request, metric="peak_memory_bytes", maximise=False, where=[LIMIT], budget_s=5400.0)
    assert plan.command == (
        "sweep tune synthetic --profile tune --pool cpu --set steps=50 --only batch_size=16 --only batch_size=32 "
        "--minimise peak_memory_bytes --where 'peak_memory_bytes<=70000000000' --budget 1h30m"
    )


def test_a_race_is_read_back_and_renewed() -> None:
    plan = planned()
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    assert read_plan(store.dir / "plan.json") == plan
    again = renew(plan)
    assert (again.race, [trial.key for trial in again.trials]) == (plan.race, [trial.key for trial in plan.trials])


def test_the_second_round_is_of_all_that_ran_backwards() -> None:
    plan = planned()
    more = one_more_heat(ran(plan, {3: Outcome.DOES_NOT_FIT, 5: Outcome.CRASHED}), plan, 0.0)
    assert more is not None and more.trials[:12] == plan.trials
    cells = [trial.cell for trial in plan.trials]
    assert [cells.index(trial.cell) for trial in more.trials[12:]] == [11, 10, 9, 8, 7, 6, 4, 2, 1, 0]
    assert {trial.repeat for trial in more.trials[12:]} == {2} and [trial.index for trial in more.trials] == list(range(22))
    assert round_note(more) == "round 2: 10 of 12 settings run"


def test_the_third_round_is_of_those_that_are_left_and_the_race_ends_once_decided() -> None:
    plan = planned()
    second = one_more_heat(ran(plan, {0: 100.0, 7: 99.9}), plan, 0.0)
    assert second is not None
    third = one_more_heat(ran(second, {0: 100.0, 7: 99.9}), second, 0.0)
    cells = [trial.cell for trial in plan.trials]
    if third is not None:
        assert {cells.index(trial.cell) for trial in third.trials[24:]} <= {0, 7}
    assert one_more_heat(ran(second, {0: 100.0}), second, 0.0) is None, "one is left"


def test_the_same_round_comes_from_the_same_results() -> None:
    plan = planned()
    store = ran(plan, {0: 100.0})
    one, other = one_more_heat(store, plan, 0.0), one_more_heat(store, plan, 500.0)
    assert one is not None and one == other


def test_a_round_starts_only_where_it_fits_in_the_budget() -> None:
    plan = planned(budget_s=240.0)
    store = ran(plan, {})
    assert one_more_heat(store, plan, 120.0) is not None, "twelve trials of 10 s"
    assert one_more_heat(store, plan, 120.1) is None
    full = plan.model_copy(update={"suite": plan.suite.model_copy(update={"limit": 23})})
    assert one_more_heat(store, full, 0.0) is None, "more trials than the suite may have"


def test_no_round_starts_where_none_ran_or_one_was_interrupted() -> None:
    plan = planned()
    assert one_more_heat(ran(plan, dict.fromkeys(range(12), Outcome.INFRA)), plan, 0.0) is None
    assert one_more_heat(ran(plan, dict.fromkeys(range(12), Outcome.CRASHED)), plan, 0.0) is None
    assert one_more_heat(ran(plan, {4: Outcome.CANCELLED}), plan, 0.0) is None


# --- limits that the parameters say


@pytest.mark.parametrize(
    ("sign", "limit", "sizes", "told"),
    [
        ("<=", 64.0, {16, 32, 64}, ["3 settings cannot keep batch_size<=64, and do not run"]),
        ("<=", 63.0, {16, 32}, ["6 settings cannot keep batch_size<=63, and do not run"]),
        (">=", 128.0, {128}, ["9 settings cannot keep batch_size>=128, and do not run"]),
        ("<=", 128.0, {16, 32, 64, 128}, []),
    ],
)
def test_a_setting_whose_batch_size_breaks_a_limit_does_not_run(sign: str, limit: float, sizes: set[int], told: list[str]) -> None:
    said: list[str] = []
    where = Constraint.model_validate({"metric": "batch_size", "sign": sign, "limit": limit})
    plan = planned(where=[LIMIT, where], say=said.append)
    assert ({trial.parameters["batch_size"] for trial in plan.trials}, len(plan.trials)) == (sizes, 3 * len(sizes))
    assert said == told and plan.race is not None and plan.race.where == [LIMIT, where]
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    assert store.load_plan() == plan


def test_nor_does_its_reference() -> None:
    plan = planned(GPU, parity=True, where=[Constraint(metric="batch_size", sign="<=", limit=48)])
    assert {trial.parameters["batch_size"] for trial in plan.trials} == {32, 48}
    assert {trial.parameters["batch_size"] for trial in plan.trials if trial.reference} == {32, 48}


def test_a_limit_that_fewer_than_two_settings_can_keep_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        planned(where=[Constraint(metric="batch_size", sign="<=", limit=8)])
    assert str(caught.value) == (
        "--where: batch_size<=8: 0 settings of 12 can keep it, and a race needs two; "
        "batch_size is 16, 32, 64, 128 in this suite: take another limit"
    )


# --- loss parity


def test_references_run_for_parity_alone_a_seed_each_round() -> None:
    assert not any(trial.reference for trial in planned(GPU).trials) and planned(GPU).suite.parity_reference == 0
    plan = planned(GPU, parity=True)
    references = [trial for trial in plan.trials if trial.reference]
    assert {trial.parameters["batch_size"] for trial in references} == {32, 48, 64} and len(references) == 3
    assert plan.race is not None and plan.race.seeds == 3
    assert set(plan.race.references) == {trial.cell for trial in references}
    assert (len(plan.trials), plan.command.endswith("--parity --budget 1h")) == (75, True)
    more = one_more_heat(ran(plan, {}), plan, 0.0)
    assert more is not None
    assert sum(trial.reference for trial in more.trials) == 6 and {trial.parameters["seed"] for trial in more.trials} == {0, 1}


def test_references_have_as_many_rounds_as_seeds_and_no_more() -> None:
    plan = planned(GPU.model_copy(update={"only": {"batch_size": [32]}}), parity=True)
    assert plan.race is not None and plan.race.seeds == 3
    for _ in range(4):  # rates so far apart that nobody leads
        more = one_more_heat(ran(plan, {}, apart=0.01), plan, 0.0)
        assert more is not None
        plan = more
    counts = [[trial.reference for trial in plan.trials if trial.repeat == number] for number in (1, 2, 3, 4, 5)]
    assert [(len(each), sum(each)) for each in counts] == [(25, 1), (25, 1), (25, 1), (24, 0), (24, 0)]
    assert {trial.parameters["seed"] for trial in plan.trials if trial.reference} == {0, 1, 2}


def test_a_fixed_precision_leaves_no_reference() -> None:
    with pytest.raises(ConfigError, match="--only precision=bf16") as caught:
        planned(GPU.model_copy(update={"set": {"precision": "bf16"}}), parity=True)
    assert (caught.value.file, caught.value.key) == ("--set", "precision")


# --- refused before anything starts


@pytest.mark.parametrize(
    ("options", "file", "said"),
    [
        ({"metric": "throughputt"}, "--maximise", "did you mean 'throughput'"),
        ({"metric": "step_time_median_s"}, "--maximise", "is better lower; use --minimise step_time_median_s"),
        ({"metric": "throughput", "maximise": False}, "--minimise", "is better higher; use --maximise throughput"),
        ({"metric": "eval_accuracy_after"}, "--maximise", "has no ratios"),
        ({"metric": "rms.patch"}, "--maximise", "has no ratios"),
    ],
)
def test_metrics_that_cannot_race(options: dict[str, Any], file: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(**options)
    assert caught.value.file == file and said in str(caught.value)


def test_only_settings_that_do_the_same_work_race() -> None:
    with pytest.raises(ConfigError, match="--only width=64 or --set width=64"):
        planned(Request(suite="synthetic", profile="full"))
    with pytest.raises(ConfigError, match="batch_size: changes the work"):
        planned(metric="step_time_median_s", maximise=False)


def test_one_setting_and_two_pools_are_no_race() -> None:
    with pytest.raises(ConfigError, match="nothing to race against"):
        planned(Request(suite="synthetic", profile="smoke"))
    with pytest.raises(ConfigError, match="on one pool, and this one has cpu, cuda"):
        planned(TUNE.model_copy(update={"pools": ["cpu", "cuda"]}))


def test_a_budget_too_short_for_one_round_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--budget: 12m is too short for one round: its 75 trials take 12m30s \(0 of them"):
        planned(GPU, parity=True, budget_s=720.0)
    assert planned(GPU, parity=True, budget_s=750.0).race is not None
    known = {trial.cell: 20.0 for trial in planned().trials}
    monkeypatch.setattr(module, "expected_seconds", lambda plan: known)
    with pytest.raises(ConfigError, match=r"2m is too short for one round: its 12 trials take 4m \(12 of them as in past sweeps"):
        planned(budget_s=120.0)


def test_more_time_for_a_race_is_the_races_own() -> None:
    plan = planned(budget_s=240.0)
    store = ran(plan, {3: 100.0})  # 12 trials of 10 s
    longer = with_budget(store, plan, 130.0)
    assert longer.race is not None and plan.race is not None
    assert (longer.race.budget_s, longer.decide) == (250.0, None)
    assert longer.race.model_copy(update={"budget_s": 240.0}) == plan.race
    assert with_budget(store, plan, None) is plan


def test_more_time_for_a_race_that_is_too_short_for_its_next_round_is_refused() -> None:
    plan = planned(budget_s=240.0)
    store = ran(plan, {3: 100.0})
    with pytest.raises(ConfigError, match=r"--budget: 1m59s is too short: a round of 12 trials takes about 2m here"):
        with_budget(store, plan, 119.0)
    assert with_budget(store, plan, 120.0).race is not None
    with pytest.raises(ConfigError, match=r"--until-decided: .* is a race, which always ends once it is decided"):
        with_budget(store, plan, 600.0, until_decided=True)
