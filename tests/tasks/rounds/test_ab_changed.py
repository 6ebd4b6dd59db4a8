"""A/B sweeps of what a change can touch: which cells, which share of the time, and what does not fit."""

from __future__ import annotations

import pytest

from experiments.config.errors import ConfigError
from tasks.rounds import ab_changed
from tasks.rounds.ab_changed import plan_changed
from tasks.rounds.ab_plan import plan_ab
from tasks.sweep.store import Request
from tasks.sweep.touched import Change, Touched
from tests.tasks.ab_support import commits

__all__ = ["commits"]  # a fixture

pytestmark = pytest.mark.usefixtures("commits")

REQUEST = Request(suite="", profile="smoke", budget_s=1200.0, until_decided=True)
FULL = REQUEST.model_copy(update={"profile": "full"})


def change(*suites: Touched) -> Change:
    """Between two commits with the code here: what differs was found before."""
    return Change("main", "HEAD", (None, None), suites, [])


def touched(suite: str, *devices: str) -> Touched:
    return Touched(suite, frozenset(devices or ("cpu",)), ("f.py",))


def test_each_suite_has_an_equal_share_and_its_baseline_cell() -> None:
    found, plans = plan_changed(change(touched("synthetic"), Touched("bert"), touched("canary")), REQUEST, named=False)
    assert [plan.name for plan in plans] == ["synthetic", "canary"] and found.left_out == []
    assert [plan.decide and plan.decide.budget_s for plan in plans] == [600.0, 600.0]
    assert plans[0].command == "sweep ab main HEAD --suite synthetic --profile smoke --budget 10m --changed"
    _, [one] = plan_changed(change(touched("synthetic")), FULL, named=True)
    assert [trial.axes["width"] for trial in one.trials] == [64, 64]
    _, [every] = plan_changed(change(touched("synthetic")), FULL, named=True, every=True)
    assert [trial.axes["width"] for trial in every.trials] == [64, 64, 256, 256]
    assert every.command.endswith("--budget 20m --all --changed")


def test_only_cells_on_kinds_of_device_that_are_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_A100_ADDRESS", "http://127.0.0.1:1")
    both = FULL.model_copy(update={"suite": "synthetic", "pools": ["cpu", "a100"]})
    plan = plan_ab(both, "main", "HEAD", devices={"cuda"})
    assert [trial.pool for trial in plan.trials] == ["a100", "a100"], "the baseline cell is on the other"
    assert {trial.pool for trial in plan_ab(both, "main", "HEAD", every=True, devices={"cpu"}).trials} == {"cpu"}


def test_what_a_cannot_run_is_left_out_unless_it_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plan_ab

    def refuse(request: Request, *sides: str, **more: object) -> object:
        if request.suite == "bert":
            raise ConfigError.one("bert", None, "commit", "is too old", "name a later commit")
        return real(request, *sides, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ab_changed, "plan_ab", refuse)
    both = change(touched("bert"), touched("synthetic"))
    found, plans = plan_changed(both, REQUEST, named=False)
    assert [plan.name for plan in plans] == ["synthetic"]
    assert [(one.suite, one.left_out) for one in found.left_out] == [("bert", "bert: commit: is too old; name a later commit")]
    with pytest.raises(ConfigError, match="is too old"):
        plan_changed(both, REQUEST, named=True)


def test_a_share_that_is_too_short_is_said_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.rounds.ab_plan.expected_seconds", lambda plan: {trial.cell: 10.0 for trial in plan.trials})
    two = change(touched("canary"), touched("synthetic"))
    assert len(plan_changed(two, REQUEST.model_copy(update={"budget_s": 40.0}), named=False)[1]) == 2
    with pytest.raises(ConfigError, match=r"--budget: of 2 equal shares, that of suite canary: 19s is too short.*; give 2 times as much"):
        plan_changed(two, REQUEST.model_copy(update={"budget_s": 38.0}), named=False)
    with pytest.raises(ConfigError, match=r"--budget: 19s is too short: one round of 2 trials takes 20s"):
        plan_changed(change(touched("canary")), REQUEST.model_copy(update={"budget_s": 19.0}), named=True)
