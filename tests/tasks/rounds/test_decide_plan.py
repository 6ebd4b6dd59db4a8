"""Sweeps with a budget: which round comes next, which look before it, and when there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from experiments.spec.schema import ReportSettings
from experiments.stats.interim_looks import Look
from experiments.trial import Outcome, TrialResult
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.rounds import decide_plan
from tasks.rounds.decide_plan import decide_note, one_more_round
from tasks.sweep.cut import cut
from tasks.sweep.store import DecideSettings, Plan, SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_suite, make_trial

TRIAL_S = 10.0


class Machine:
    """Runs plans: trial `number` has these rates by round (the last one for all later), and takes ten seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rates: Mapping[int, Sequence[float]], **settings: Any) -> None:
        self.rates, self.now, self.results = rates, 0.0, dict[str, TrialResult]()
        self.outcomes: dict[int, Outcome] = {}
        self.by_round: dict[tuple[int, int], Outcome] = {}  # (number, round)
        report = ReportSettings(rows=["pool"], columns="number")
        suite = make_suite(baseline={"number": 1}, report=report, axes={"pool": ["cpu"], "number": list(rates)})
        trials = [make_trial(number, index=place) for place, number in enumerate(rates)]
        self.plan = make_plan(trials, suite=suite, decide=DecideSettings(**{"budget_s": 1000.0, "until_decided": True, **settings}))
        self.store = SweepStore(self.plan.sweep_id)
        monkeypatch.setattr(decide_plan, "load_sweep", lambda folder: Sweep(folder, self.plan, self.rows()))

    def rows(self) -> list[TrialRow]:
        return [self.row(trial) for trial in self.plan.trials]

    def row(self, trial: Any) -> TrialRow:
        number = int(trial.parameters["number"])
        rates = self.rates[number]
        return TrialRow(trial, self.results.get(trial.key), {"throughput": rates[min(trial.repeat, len(rates)) - 1]})

    def run(self) -> Plan | None:
        """All trials that have no result; then what comes next."""
        for trial in self.plan.trials:
            if trial.key not in self.results:
                number = int(trial.parameters["number"])
                outcome = self.by_round.get((number, trial.repeat), self.outcomes.get(number, Outcome.OK))
                self.results[trial.key] = make_result(trial, outcome, started_at=self.now, finished_at=self.now + TRIAL_S)
                self.now += TRIAL_S
        return one_more_round(self.store, self.plan, self.now)

    def to_the_end(self) -> list[list[int]]:
        """The cells of each round, by their numbers, in order."""
        while (plan := self.run()) is not None:
            assert plan != self.plan
            self.plan = plan
        rounds: dict[int, list[int]] = {}
        for trial in self.plan.trials:
            rounds.setdefault(trial.repeat, []).append(int(trial.parameters["number"]))
        return list(rounds.values())


CLEAR = {1: (100, 101, 100), 2: (150, 151, 150), 3: (100, 104, 97, 103, 96, 102, 98)}


def test_what_is_decided_takes_part_in_no_more_rounds_and_the_order_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, most=6)
    assert machine.to_the_end() == [[1, 2, 3], [3, 2, 1], [1, 2, 3], [3, 1], [1, 3], [3, 1]]
    assert machine.plan.decide is not None
    assert [look.round for look in machine.plan.decide.looks] == [3, 4, 5, 6]
    assert machine.plan.decide.looks[0].spent == pytest.approx(0.75 * (3 / 6) ** 2)
    assert machine.plan.decide.looks[-1] == Look(round=6, spent=0.75)
    assert [trial.index for trial in machine.plan.trials] == list(range(len(machine.plan.trials)))


def test_a_whole_round_fits_or_none_starts_and_the_last_look_spends_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, budget_s=90.0 + 20.0)
    assert len(machine.to_the_end()) == 4, "a round of two cells fits exactly"
    machine = Machine(monkeypatch, CLEAR, budget_s=90.0 + 19.9)
    assert len(machine.to_the_end()) == 3
    assert machine.plan.decide is not None and machine.plan.decide.looks == [Look(round=3, spent=0.75)]
    machine = Machine(monkeypatch, CLEAR, budget_s=89.9)
    assert len(machine.to_the_end()) == 2
    assert machine.plan.decide is not None and machine.plan.decide.looks == [], "no look before `least`"


def test_a_round_that_was_looked_at_and_cut_as_lost_is_run_again_and_its_look_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sweep publish` leaves a sweep whose last round the infrastructure ended."""
    machine = Machine(monkeypatch, {1: CLEAR[1], 3: CLEAR[3]}, most=6, budget_s=110.0)
    machine.by_round = {(1, 5): Outcome.INFRA, (3, 5): Outcome.INFRA}
    machine.to_the_end()
    lost = [trial for trial in machine.plan.trials if trial.repeat == 5]
    states = {key: result.outcome for key, result in machine.results.items()}
    monkeypatch.setattr(machine.store, "states", lambda plan: states)
    machine.plan = cut(machine.store, machine.plan, lost=True)
    assert machine.plan.decide is not None and machine.plan.decide.looks[-1].round == 5 and machine.plan.last_round == 4
    more = one_more_round(machine.store, machine.plan, 0.0)
    assert more is not None and more.decide is not None and more.decide.looks == machine.plan.decide.looks
    assert {trial.key for trial in more.trials if trial.repeat == 5} == {trial.key for trial in lost} and more.cut == []


def test_without_until_decided_all_cells_run_and_there_is_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, until_decided=False, budget_s=155.0)
    assert machine.to_the_end() == [[1, 2, 3], [3, 2, 1], [1, 2, 3], [3, 2, 1], [1, 2, 3]]
    assert machine.plan.decide is not None and machine.plan.decide.looks == [Look(round=5, spent=0.75)]


def test_a_cell_that_never_ran_ok_gets_no_more_and_of_its_comparison_nothing_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, most=6)
    machine.outcomes = {3: Outcome.UNSUPPORTED}
    assert machine.to_the_end() == [[1, 2, 3], [2, 1], [1, 2]]
    machine = Machine(monkeypatch, CLEAR, most=6)
    machine.outcomes = {1: Outcome.DOES_NOT_FIT, 2: Outcome.CRASHED, 3: Outcome.UNSUPPORTED}
    assert machine.to_the_end() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("later", "rounds"),
    [
        ([Outcome.CRASHED, Outcome.CRASHED], 3),
        ([Outcome.CRASHED, Outcome.OK, Outcome.HANG, Outcome.CRASHED], 5),
        ([Outcome.CRASHED, Outcome.INFRA, Outcome.CRASHED], 4),
        ([Outcome.INFRA] * 5, 6),
    ],
)
def test_a_cell_that_keeps_failing_gets_no_more(monkeypatch: pytest.MonkeyPatch, later: list[Outcome], rounds: int) -> None:
    machine = Machine(monkeypatch, {1: CLEAR[1], 3: CLEAR[3]}, most=6, until_decided=False)
    machine.by_round = {(3, 2 + place): outcome for place, outcome in enumerate(later)}
    held = machine.to_the_end()
    assert [number for number, cells in enumerate(held, 1) if 3 in cells] == list(range(1, rounds + 1))
    assert len(held) == 6 and all(1 in cells for cells in held)


def test_the_baseline_of_a_cell_that_keeps_failing_is_measured_no_more_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {1: CLEAR[1], 3: CLEAR[3]}, most=6)
    assert machine.to_the_end()[3:] == [[3, 1], [1, 3], [3, 1]], "undecided to the end"
    machine = Machine(monkeypatch, {1: CLEAR[1], 3: CLEAR[3]}, most=6)
    machine.by_round = {(3, 2): Outcome.CRASHED, (3, 3): Outcome.CRASHED}
    assert machine.to_the_end() == [[1, 3], [3, 1], [1, 3]]


def test_cells_whose_baseline_keeps_failing_are_measured_no_more_for_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, most=6)
    machine.by_round = {(1, 2): Outcome.CRASHED, (1, 3): Outcome.CRASHED}
    assert machine.to_the_end() == [[1, 2, 3], [3, 2, 1], [1, 2, 3]]


def test_the_plan_holds_no_more_trials_than_the_suites_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR)
    machine.plan = machine.plan.model_copy(update={"suite": machine.plan.suite.model_copy(update={"limit": 12})})
    assert [len(cells) for cells in machine.to_the_end()] == [3, 3, 3, 2]


def test_where_repeats_are_seeds_another_round_has_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, most=4)
    machine.plan = machine.plan.model_copy(update={"suite": machine.plan.suite.model_copy(update={"parity_reference": 3})})
    machine.to_the_end()
    assert {(trial.repeat, trial.parameters["seed"], trial.key_parts["seed"]) for trial in machine.plan.trials} == {
        (1, 0, "0"), (2, 1, "1"), (3, 2, "2"), (4, 3, "3"),
    }  # fmt: skip
    assert len({trial.cell for trial in machine.plan.trials}) == 3 and len({trial.key for trial in machine.plan.trials}) == 11


def test_a_cell_whose_first_trial_was_cut_has_the_seed_of_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, until_decided=False)
    machine.plan = machine.plan.model_copy(update={"suite": machine.plan.suite.model_copy(update={"parity_reference": 3})})
    second = machine.run()
    assert second is not None
    [missing] = [trial for trial in second.trials if (trial.repeat, trial.parameters["number"]) == (1, 3)]
    machine.plan = second.model_copy(update={"trials": [trial for trial in second.trials if trial != missing], "cut": [missing]})
    third = machine.run()
    assert third is not None
    assert {
        (trial.parameters["number"], trial.repeat, trial.parameters["seed"], trial.key_parts["seed"]) for trial in third.trials
    } == {
        (1, 1, 0, "0"), (2, 1, 0, "0"),
        (1, 2, 1, "1"), (2, 2, 1, "1"), (3, 2, 1, "1"),
        (1, 3, 2, "2"), (2, 3, 2, "2"), (3, 3, 2, "2"),
    }  # fmt: skip


def test_a_larger_budget_goes_on_where_the_looks_were(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, budget_s=110.0)
    machine.to_the_end()
    assert machine.plan.decide is not None
    before = machine.plan.decide.looks
    machine.plan = machine.plan.model_copy(update={"decide": machine.plan.decide.model_copy(update={"budget_s": machine.now + 40.0})})
    assert len(machine.to_the_end()) == 6
    assert machine.plan.decide is not None
    assert machine.plan.decide.looks[: len(before)] == before
    assert [look.spent for look in before] == [0.75, 0.9375], "with two cells left a round fitted after all"
    assert machine.plan.decide.looks[-1] == Look(round=6, spent=1 - 0.25**3)


def test_a_round_that_was_cut_and_is_planned_again_is_cut_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, until_decided=False)
    second = machine.run()
    assert second is not None
    again = [trial for trial in second.trials if trial.repeat == 2]
    other = make_trial(9)
    machine.plan = machine.plan.model_copy(update={"cut": [*again, other]})
    planned = machine.run()
    assert planned is not None and planned.trials == second.trials and planned.cut == [other]


def test_the_note_says_the_round_and_what_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, CLEAR, most=5)
    assert decide_note(machine.plan) == "round 1"
    machine.to_the_end()
    assert decide_note(machine.plan) == "round 5 of up to 5, undecided: cpu · number 3"
