"""--budget and --until-decided: what `sweep run` and `sweep resume` make of them, what `sweep plan` says."""

from __future__ import annotations

import pytest
from click.testing import Result
from typer.testing import CliRunner

from experiments.trial import Outcome
from flows.cli import commands, show_plan
from flows.cli.commands import app
from flows.cli.show_plan import plan_json
from tasks.sweep import budget, deadline
from tasks.sweep.store import DecideSettings, Plan, Superseded, SweepStore
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_a_budget_reaches_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(commands, "start", lambda plan, look: plans.append(plan) or 0)
    run = CliRunner().invoke(app, ["run", "bridgetower", "--profile", "smoke", "--budget", "1h30m", "--no-until-decided"])
    assert run.exit_code == 0, run.output
    [plan] = plans
    assert plan.decide == DecideSettings(budget_s=5400.0, until_decided=False, least=3)
    assert plan.command == "sweep run bridgetower --profile smoke --budget 1h30m --no-until-decided"


def test_resume_passes_on_what_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1), make_trial(2)], decide=DecideSettings(budget_s=5.0))
    saved(plan, t1=Outcome.OK)
    monkeypatch.setattr("tasks.rounds.budget.renew", lambda plan, **_: plan)
    told: list[tuple[Plan, dict[str, object]]] = []
    monkeypatch.setattr("flows.cli.run_sweep.run_sweep", lambda plan, out, err, look, **more: told.append((plan, more)) or 0)
    assert CliRunner().invoke(app, ["resume", plan.sweep_id, "--budget", "20m", "--until-decided"]).exit_code == 0
    [(changed, more)] = told
    assert more == {"budget": "20m", "until_decided": True}
    assert changed.decide == DecideSettings(budget_s=1260.0, until_decided=True, resumed=True)
    assert SweepStore(plan.sweep_id).load_plan() == plan, "the flow saves it, once it holds the sweep"


class Resumed:
    """`sweep resume` of a sweep of two trials, of which the first took a minute. `left`: the deadline of each flow, s from its start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first, self.second, self.left = make_trial(1), make_trial(2), list[float | None]()
        self.renewed = {self.first.key: self.first, self.second.key: self.second}
        monkeypatch.setattr("tasks.rounds.budget.renew", self.renew)
        monkeypatch.setattr("flows.cli.run_sweep.run_sweep", self.run)

    def renew(self, plan: Plan, **_: object) -> Plan:
        trials = [self.renewed[trial.key] for trial in plan.trials]
        changed = [(old, new) for old, new in zip(plan.trials, trials, strict=True) if old.key != new.key]
        superseded = [Superseded(key=old.key, by=new.key, why="code changed") for old, new in changed]
        return plan.model_copy(update={"trials": trials, "superseded": [*plan.superseded, *superseded]})

    def run(self, plan: Plan, *_: object, **__: object) -> int:
        """As a flow that is killed before it ends a trial."""
        ends = deadline.CURRENT.get()
        self.left.append(None if ends is None else ends.left_s)
        SweepStore(plan.sweep_id).save_plan(plan)
        return 1

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["resume", self.first.sweep_id, *words])

    @property
    def plan(self) -> Plan:
        return make_plan([self.first], cut=[self.second], decide=DecideSettings(budget_s=5.0))


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> Resumed:
    return Resumed(monkeypatch)


def test_what_there_was_no_time_for_has_the_time_that_is_given_also_after_a_kill(resumed: Resumed) -> None:
    store = saved(resumed.plan, t1=Outcome.OK)
    for _ in range(2):
        resumed("--budget", "20m")
        plan = store.load_plan()
        assert ([trial.key for trial in plan.trials], plan.cut) == ([resumed.first.key, resumed.second.key], [])
    assert [left is not None and 1100.0 < left <= 1200.0 for left in resumed.left] == [True, True]
    assert deadline.CURRENT.get() is None


def test_time_in_which_no_trial_that_is_left_ends_is_refused_and_nothing_starts(resumed: Resumed) -> None:
    store = saved(resumed.plan, t1=Outcome.OK)
    refused = resumed("--budget", "59s")
    assert refused.exit_code == 1 and "59s is too short for any trial that is left" in refused.stderr
    assert "the shortest is expected to take 60 s" in refused.stderr
    assert resumed.left == [] and store.load_plan() == resumed.plan


def test_trials_that_crashed_run_again_in_time_in_which_no_round_fits(resumed: Resumed) -> None:
    """A round takes two minutes by what the trials took that did not crash, and the one that crashed a minute."""
    third = make_trial(3)
    resumed.renewed[third.key] = third
    plan = make_plan([resumed.first, resumed.second, third], decide=DecideSettings(budget_s=5.0, until_decided=False))
    store = saved(plan, t1=Outcome.OK, t2=Outcome.CRASHED, t3=Outcome.OK)
    round_ = resumed("--budget", "60s")
    assert round_.exit_code == 1 and "1m is too short: a round of 2 trials takes about 2m here" in round_.stderr, round_.output
    refused = resumed("--budget", "59s", "--crashed")
    assert refused.exit_code == 1 and "59s is too short for any trial that is left" in refused.stderr, refused.output
    assert store.load_plan() == plan and store.states(plan)[resumed.second.key] is Outcome.CRASHED, "nothing was written"
    assert resumed("--budget", "60s", "--crashed").exit_code == 1 and len(resumed.left) == 1
    assert resumed.left[0] is not None and 50.0 < resumed.left[0] <= 60.0
    assert store.states(plan) == {resumed.first.key: Outcome.OK, resumed.second.key: None, third.key: Outcome.OK}
    assert [one.key for one in store.load_plan().retried] == [resumed.second.key]


def test_what_is_measured_again_since_the_code_changed_is_not_cut_from_the_sweep(resumed: Resumed) -> None:
    """A deadline would leave out those that were measured before, and call the sweep whole."""
    resumed.renewed[resumed.first.key] = make_trial(11)
    saved(resumed.plan, t1=Outcome.OK)
    resumed("--budget", "20m")
    resumed.renewed |= {"000000000000000b": make_trial(12), resumed.second.key: resumed.second}
    resumed("--budget", "20m")  # killed, and the code changed once more
    assert resumed.left == [None, None]


def test_a_sweep_that_has_ended_goes_on_by_whole_rounds(resumed: Resumed) -> None:
    saved(make_plan([resumed.first], decide=DecideSettings(budget_s=5.0)), t1=Outcome.OK)
    resumed("--budget", "20m")
    assert resumed.left == [None]


@pytest.mark.parametrize(
    ("least", "most", "until", "said"),
    [
        (3, 8, False, "; the comparisons are judged after the last one"),
        (3, 8, True, "; from round 3 on what is decided takes part in no more, and the rest has the time, in up to 8 rounds"),
        (5, 5, True, "; 5 rounds at the most, after which the comparisons are judged"),
    ],
)
def test_a_plan_says_when_its_comparisons_are_judged(least: int, most: int, until: bool, said: str) -> None:
    plan = make_plan([make_trial(1)], decide=DecideSettings(budget_s=60.0, least=least, most=most, until_decided=until))
    assert show_plan._rounds(plan).endswith(said)


def test_a_plan_says_how_many_rounds_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([make_trial(1), make_trial(2)], decide=DecideSettings(budget_s=60.0, most=8))
    told = {"budget_s": 60.0, "until_decided": False, "least": 3, "most": 8}
    assert plan_json(plan, [], {}, None, {})["budget"] == {**told, "round_s": None, "rounds": None}
    monkeypatch.setattr(budget, "expected_seconds", lambda plan: {trial.cell: 10.0 for trial in plan.trials})
    assert plan_json(plan, [], {}, None, {})["budget"] == {**told, "round_s": 20.0, "rounds": 3}
