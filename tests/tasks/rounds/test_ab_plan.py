"""A/B sweeps: which cells, which trials in which order, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.errors import ConfigError
from experiments.trial import Outcome
from tasks.rounds import ab_plan
from tasks.rounds.ab_plan import plan_ab
from tasks.rounds.decide_plan import round_of
from tasks.rounds.growth import growth
from tasks.sweep import plan as planning
from tasks.sweep.ab_settings import AbSettings
from tasks.sweep.plan import compare_with_last
from tasks.sweep.plan import make_plan as plan_of_request
from tasks.sweep.store import Plan, Request, SweepStore, read_plan
from tests.tasks.ab_support import COMMITS, commits
from tests.tasks.plan_support import make_result

__all__ = ["commits"]  # a fixture

REQUEST = Request(suite="synthetic", profile="full", budget_s=1200.0, until_decided=True)
SLOWED = ("injected_slowdown=0", "injected_slowdown=0.3")


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "git_state", lambda: {"commit": "abc", "dirty": False})


def planned(a: str = SLOWED[0], b: str = SLOWED[1], *, every: bool = False, **request: Any) -> Plan:
    return plan_ab(REQUEST.model_copy(update=request), a, b, every=every)


def sides(plan: Plan) -> list[tuple[Any, ...]]:
    return [(trial.axes["side"][0], trial.axes.get("width"), trial.repeat) for trial in plan.trials]


def test_on_gpus_a_plain_sweep_is_traced_and_its_a_b_sweep_as_the_suite_says(commits: None) -> None:
    """An older side may not know how."""
    request = Request(suite="bert", profile="cuda", budget_s=1200.0, until_decided=True)
    of_commit = request.model_copy(update={"set": {"commit": next(iter(COMMITS))}})
    plans = [plan_of_request(request)[0], plan_ab(request, "seed=0", "seed=1", every=False), plan_of_request(of_commit)[0]]
    assert [{trial.parameters["profile_steps"] for trial in plan.trials} for plan in plans] == [{4}, {0}, {0}]


def test_the_baseline_cell_alone_runs_as_a_and_as_b_in_turns() -> None:
    plan = planned()
    assert sides(plan) == [("A", 64, 1), ("B", 64, 1)]
    assert [trial.parameters["injected_slowdown"] for trial in plan.trials] == [0.0, 0.3]
    assert [trial.axes["side"][0] for trial in round_of(plan, [trial.cell for trial in plan.trials])] == ["B", "A"]
    assert plan.ab == AbSettings(kind="settings", a=SLOWED[0], b=SLOWED[1]) and plan.ab.labels == (
        "A: injected_slowdown=0",
        "B: injected_slowdown=0.3",
    )
    assert plan.decide is not None and (plan.decide.budget_s, plan.decide.until_decided, plan.decide.least) == (1200.0, True, 3)
    assert growth(plan) is not None
    assert plan.command == "sweep ab injected_slowdown=0 injected_slowdown=0.3 --suite synthetic --profile full --budget 20m"


def test_only_and_all_take_more_cells_with_the_sides_of_each_together() -> None:
    every = planned(every=True)
    assert sides(every) == [("A", 64, 1), ("B", 64, 1), ("A", 256, 1), ("B", 256, 1)]
    assert [trial.index for trial in every.trials] == [0, 1, 2, 3] and every.command.endswith(" --budget 20m --all")
    assert sides(planned(only={"width": [256]})) == [("A", 256, 1), ("B", 256, 1)]


def test_the_report_compares_b_with_a_and_says_what_they_set() -> None:
    suite = planned().suite
    assert suite.baseline == {"side": "A: injected_slowdown=0"} and (suite.report.columns, suite.sets) == ("side", {})
    assert [condition.set for condition in suite.conditions][-2:] == [{"injected_slowdown": 0}, {"injected_slowdown": 0.3}]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("steps=50", "steps=50"),
        ("steps=50,width=64", "width=64,steps=50"),
        ("injected_slowdown=0", "seed=0"),
        ("worktree", "worktree"),
        ("env:default", "env:default"),
    ],
)
@pytest.mark.parametrize("every", [False, True])
def test_sides_whose_trials_are_the_same_are_refused_before_anything_runs(a: str, b: str, every: bool) -> None:
    request = {"only": {"width": [64]}} if "width" in a else {}
    with pytest.raises(ConfigError) as caught:
        planned(a, b, every=every, **request)
    hint = "name two; `sweep aa` compares a cell with itself"
    assert str(caught.value) == f"A and B: are the same trials: no setting, code or environment differs; {hint}"


def test_cells_in_which_both_sides_are_the_same_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a workload that changes the value of one side in some cells."""
    real = ab_plan._what_runs
    monkeypatch.setattr(ab_plan, "_what_runs", lambda trial: "same" if trial.axes["width"] == 256 else real(trial))
    with pytest.raises(ConfigError) as caught:
        planned(every=True)
    assert str(caught.value) == (
        "A and B: are the same trials in 1 of 2 cells, first in cpu · fp32 · width 256; "
        "keep the cells in which they differ with --only; `sweep aa` compares a cell with itself"
    )
    assert len(planned(every=True, only={"width": [64]}).trials) == 2


@pytest.mark.usefixtures("commits")
def test_commits_are_those_of_the_trials_and_worktree_is_the_code_here() -> None:
    plan = planned("main", "HEAD")
    assert [trial.commit for trial in plan.trials] == ["a" * 40, "b" * 40] and set(plan.trees) == {"a" * 40, "b" * 40}
    assert plan.trials[0].axes == {"pool": "cpu", "precision": "fp32", "width": 64, "side": "A: main"}
    assert [trial.commit for trial in planned("commit:main", "worktree").trials] == ["a" * 40, None]
    assert plan.ab is not None and plan.ab.kind == "commits"
    named = planned("0123456789" * 4, "HEAD")
    assert named.ab is not None and named.ab.a == "012345678901" and named.command.startswith("sweep ab 012345678901 HEAD ")
    assert [trial.commit for trial in named.trials] == ["c" * 40, "b" * 40]


def test_it_is_read_back_and_no_plain_sweep_takes_its_trials_for_its_own() -> None:
    plan = planned()
    store = SweepStore(plan.sweep_id)
    store.save_plan(plan)
    for trial in plan.trials:
        store.save_result(make_result(trial, Outcome.OK))
    assert read_plan(store.dir / "plan.json") == plan
    assert compare_with_last(plan_of_request(Request(suite="synthetic", profile="full"))[0])[0] is None


@pytest.mark.parametrize(
    ("a", "b", "request_", "said"),
    [
        ("main", "env:default", {}, "A is of commits and B of environments"),
        ("", "main", {}, "names nothing"),
        ("env:nope", "env:default", {}, "unknown environment 'nope'"),
        ("env:default", "env:nope", {}, "unknown environment 'nope'"),
        ("no-such-commit", "worktree", {}, "is no commit"),
        ("steps=1", "steps", {}, "A is of settings and B of commits"),
        ("steps=1,x", "steps=2", {}, "is not KEY=VALUE"),
        ("set:steps=1,steps=2", "steps=2", {}, "is given twice"),
        ("pool=cpu", "pool=cuda", {}, "choose it with --pool"),
        ("no_such=1", "no_such=2", {}, "no_such"),
        ("steps=100", "steps=200", {"set": {"steps": 3}}, "stands in 'steps=100' too"),
        ("width=64", "width=256", {}, "do not do the same work: width 256, there 64"),
    ],
)
def test_what_cannot_be_compared_is_refused(a: str, b: str, request_: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(a, b, **request_)
    assert said in str(caught.value)


@pytest.mark.usefixtures("commits")
def test_one_commit_under_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="main and again are the same commit aaaaaaaaaaaa"):
        planned("main", "again")
    with pytest.raises(ConfigError, match="A and B: are the same trials"):
        planned("main", "main")


def test_sides_with_other_cells_do_not_pair_up() -> None:
    with pytest.raises(ConfigError, match="do not pair up"):
        planned("steps=50", "width=64,steps=50", every=True)


@pytest.mark.usefixtures("commits")
def test_a_budget_in_which_no_round_fits_is_refused_by_what_plain_sweeps_took() -> None:
    plain, _ = plan_of_request(Request(suite="synthetic", profile="full", set={"steps": 77}))
    store = SweepStore(plain.sweep_id)
    store.save_plan(plain)
    store.save_result(make_result(plain.trials[0], Outcome.OK))  # 60 s
    assert len(planned("main", "HEAD", set={"steps": 77}, budget_s=120.0).trials) == 2
    with pytest.raises(ConfigError, match=r"1m59s is too short: one round of 2 trials takes 2m"):
        planned("main", "HEAD", set={"steps": 77}, budget_s=119.0)
