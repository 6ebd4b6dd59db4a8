"""Which published sweeps count as the same on other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.trial import Trial
from tasks.documents.other_hosts import on_other_hosts
from tasks.documents.published import Page, SweepOnPage
from tasks.sweep.store import AaSettings, Plan
from tests.tasks.plan_support import make_plan, make_trial

ONE, TWO = make_trial(1), make_trial(2)
REFERENCE = make_trial(3, reference=True)


def page(name: str, plan: Plan, host: str) -> Page:
    ran_on = {trial.key: ("Made-up CPU", 1) for trial in plan.trials}
    return Page(Path(name), name, [SweepOnPage(Path(name) / "sweep", plan, "", "", "", 3, None, ran_on, frozenset({host}))])


def are_same(here: Plan, there: Plan) -> bool:
    return bool(on_other_hosts([page("here", here, "a"), page("there", there, "b")]))


@pytest.mark.parametrize(
    ("trials", "cut", "same"),
    [
        ([ONE, TWO], [], True),
        ([ONE], [TWO], True),  # time cut what was asked for all the same
        ([ONE, TWO, REFERENCE], [], True),  # of loss parity, which is no cell
        ([ONE], [], False),
    ],
)
def test_they_were_to_measure_the_same_cells(trials: list[Trial], cut: list[Trial], same: bool) -> None:
    assert are_same(make_plan([ONE, TWO]), make_plan(trials, cut=cut)) is same


def test_one_cell_against_itself_is_no_sweep_of_its_suite() -> None:
    plain = make_plan([ONE, TWO])
    against_itself = plain.model_copy(update={"aa": AaSettings(pairs=3)})
    assert not are_same(plain, against_itself) and are_same(against_itself, against_itself)
