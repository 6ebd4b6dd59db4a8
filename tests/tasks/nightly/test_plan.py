"""What a night measures, in which order, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from experiments.regression.definition import NightFile, load_night
from tasks.nightly.plan import empty_night, plan_night, templates, with_repeats
from tasks.nightly.store import Night
from tasks.sweep.store import Plan
from tests.cli_support import ROOT


@pytest.fixture(autouse=True)
def _extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(ROOT / "tests" / "workloads_for_tests"))


def planned(budget_s: float = 600.0, **changes: object) -> tuple[Plan, Night]:
    definition = NightFile.model_validate({**load_night("small").model_dump(), **changes})
    return plan_night(definition, empty_night("small", "2026-11-21", budget_s))


def test_cells_of_all_suites_are_interleaved_with_what_measures_the_night() -> None:
    plan, night = planned()
    roles = [trial.labels["night.role"] for trial in plan.trials]
    assert roles == ["canary", "history", "history", "twin", "injected"] * 2
    assert [trial.repeat for trial in plan.trials] == [1] * 5 + [2] * 5
    assert [trial.index for trial in plan.trials] == list(range(10))
    assert len({trial.key for trial in plan.trials}) == 10
    assert [cell.role for cell in night.cells] == roles[:5]
    assert {trial.labels["night.date"] for trial in plan.trials} == {"2026-11-21"}


def test_both_controls_are_cells_of_their_own_with_the_identity_of_the_cell_that_they_copy() -> None:
    plan, _ = planned()
    canary, _, _, control, slowed = plan.trials[:5]
    assert len({canary.cell, control.cell, slowed.cell}) == 3
    assert {trial.labels["night.cell"] for trial in (canary, control, slowed)} == {canary.labels["night.cell"]}
    assert (canary.parameters, slowed.parameters["injected_slowdown"]) == (control.parameters, 0.5)
    assert (control.axes["probe"], slowed.axes["probe"]) == ("A/A control", "slowed by 0.5")
    other, _ = planned(probe="two")
    assert templates(other)[other.trials[1].labels["night.cell"], "twin"].workload == "faulty"


def test_more_repeats_are_added_behind_and_nothing_twice() -> None:
    plan, _ = planned()
    one = templates(plan)[plan.trials[1].labels["night.cell"], "history"]
    longer = with_repeats(plan, [one, plan.trials[0]], 4)
    added = longer.trials[10:]
    assert [(trial.repeat, trial.labels["night.role"]) for trial in added] == [(3, "history"), (3, "canary"), (4, "history"), (4, "canary")]
    assert len({trial.key for trial in longer.trials}) == 14 and with_repeats(longer, [one], 4).trials == longer.trials


def test_what_does_not_fit_is_dropped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, night = planned()
    good, bad = (trial.cell for trial in plan.trials[1:3])
    took = {trial.cell: 10.0 for trial in plan.trials} | {bad: 40.0}
    monkeypatch.setattr("tasks.nightly.plan.expected_seconds", lambda _: took)
    assert planned(160)[1].dropped == []
    plan, night = planned(100)
    assert [entry.name for entry in night.dropped] == ["two · cpu · raise · steps 30"]
    assert "value 1, 80 s: does not fit the budget of 100 s" in night.dropped[0].why
    assert bad not in {trial.cell for trial in plan.trials} and good in {trial.cell for trial in plan.trials}
    with pytest.raises(ConfigError, match="30 s leave no time for a cell; what the night measures itself with takes 60 s"):
        planned(30)


def test_cells_without_history_count_as_the_others_of_their_pool_and_a_first_night_as_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = planned()
    canary, good, *_ = (trial.cell for trial in plan.trials)
    monkeypatch.setattr("tasks.nightly.plan.expected_seconds", lambda _: {canary: 30.0, good: 10.0})
    assert planned(200)[1].dropped == []  # two repeats of 30, 10 and three times their mean
    (dropped,) = planned(199)[1].dropped
    assert dropped.name == "two · cpu · raise · steps 30"
    assert dropped.why == "value 1, 40 s without history, as the pool's other cells: does not fit the budget of 199 s"
    assert len(planned(160)[1].dropped) == 1
    with pytest.raises(ConfigError, match="159 s leave no time for a cell; what the night measures itself with takes 140 s"):
        planned(159)
    monkeypatch.setattr("tasks.nightly.plan.expected_seconds", lambda _: {})
    assert planned(10)[1].dropped == []  # of nothing is more known than that no trial takes less than a second
    assert planned(9)[1].dropped[0].why == "value 1, 2 s at least, without history: does not fit the budget of 9 s"
    with pytest.raises(ConfigError, match="7 s leave no time for a cell; what the night measures itself with takes 6 s"):
        planned(7)


def test_what_cannot_be_judged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="names a cell twice"):
        planned(cells=[{"suite": "two", "set": {"steps": 30}}] * 2)
    with pytest.raises(ConfigError, match=r"canary: gives 2 cells on pool cpu; narrow it with `only`"):
        planned(canary={"suite": "two"})
    with pytest.raises(ConfigError, match="unknown suite"):
        planned(cells=[{"suite": "tow"}])
    pools = tmp_path / "pools.yaml"
    pools.write_text("pools:\n  cpu: {device: cpu, address: embedded, emulated: true}\n")
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(pools))
    with pytest.raises(ConfigError, match="pool cpu is emulated; name a pool whose device is real"):
        planned()
