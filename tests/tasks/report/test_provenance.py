"""Which code a report's numbers are of, and what it says where that is not sure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.provenance import commit_text, commits_text, other_commits, provenance_cautions, ran_at, tree_text
from tests.tasks.cell_support import row, workers
from tests.tasks.plan_support import make_plan, make_trial

PLANNED, OTHER = "a" * 16, "b" * 16


def ran(count: int, tree: str | None) -> TrialRow:
    return row(workers(count), environment={"torch": "2", **({"tree": tree} if tree else {})})


def sweep(*rows: TrialRow, **plan: Any) -> Sweep:
    return Sweep(Path("nowhere"), make_plan([make_trial()], **{"tree": PLANNED, **plan}), rows)


def test_one_tree_in_every_trial_needs_no_caution() -> None:
    one = sweep(ran(0, PLANNED), ran(1, PLANNED), row(workers(2), None, outcome=None))
    assert provenance_cautions(one) == [] and tree_text(one) == f"{PLANNED} in every trial"
    assert tree_text(sweep()) == PLANNED, "nothing ran yet"


def test_a_trial_of_another_tree_is_named() -> None:
    one = sweep(ran(0, PLANNED), ran(1, OTHER), ran(2, None))
    assert provenance_cautions(one) == [
        f"1 trial ran other code (tree {OTHER}) than was planned (tree {PLANNED}): cpu · MP-1 · #1.",
        "Which code ran in 1 trial is not known: cpu · MP-2 · #1.",
    ]
    assert tree_text(one) == f"{PLANNED} planned; {PLANNED} in 1 trial, {OTHER} in 1 trial and unknown in 1 trial"


def test_a_trial_of_a_commit_is_held_to_its_commits_tree() -> None:
    commit, early = "c" * 40, "d" * 40

    def of(number: int, commit: str, tree: str | None) -> TrialRow:
        one = ran(number, tree)
        return replace(one, trial=one.trial.model_copy(update={"commit": commit, "axes": {"commit": "main", **one.trial.axes}}))

    rows = [ran(0, PLANNED), of(1, commit, OTHER), of(2, early, None)]
    one = Sweep(Path("nowhere"), make_plan([each.trial for each in rows], tree=PLANNED, trees={commit: OTHER}), rows)
    assert provenance_cautions(one) == [] and tree_text(one) == f"{PLANNED} in the 1 trial without a commit"
    assert commits_text(one.plan) == f"main: {'c' * 12}, tree {OTHER}; main: {'d' * 12}, tree unknown"
    rows[1] = of(1, commit, PLANNED)
    assert provenance_cautions(replace(one, rows=rows)) == [
        f"1 trial ran other code (tree {PLANNED}) than was planned (tree {OTHER}): commit main · cpu · MP-1 · #1."
    ]
    assert tree_text(replace(one, rows=rows[1:])) == ""


def test_an_early_plan_says_nothing_of_trees() -> None:
    one = sweep(ran(0, None), tree=None, schema_version=2, git={"commit": "c" * 40, "dirty": False})
    assert provenance_cautions(one) == [] and tree_text(one) == ""
    assert commit_text(one.plan) == "c" * 12


def test_a_commit_that_nobody_checked_says_so() -> None:
    one = sweep(ran(0, PLANNED), git={"commit": "c" * 40, "dirty": True, "checked": False})
    assert commit_text(one.plan) == f"{'c' * 12} with uncommitted changes (asserted, not checked)"
    assert provenance_cautions(one) == [f"The commit {'c' * 12} is asserted, not checked: there was no git where the sweep was planned."]
    checked = sweep(ran(0, PLANNED), git={"commit": "c" * 40, "dirty": False, "checked": True})
    assert commit_text(checked.plan) == "c" * 12 and provenance_cautions(checked) == []


def test_a_sweep_that_went_on_at_a_later_commit_says_so() -> None:
    first, later = "c" * 40, "d" * 40
    told = [replace(ran(count, PLANNED), environment={"tree": PLANNED, "git_commit": at}) for count, at in enumerate((first, later, later))]
    one = sweep(*told, git={"commit": first, "dirty": False})
    assert ran_at(one) == f"{'c' * 12}; 2 trials at {'d' * 12}"
    assert provenance_cautions(one) == [f"2 trials ran at commit {'d' * 12}, where the sweep's plan is of {'c' * 12}."]
    assert ran_at(sweep(told[0], git={"commit": first, "dirty": False})) == "c" * 12


def test_trials_at_other_commits_are_given_by_commit_without_those_that_have_one_of_their_own() -> None:
    first, later, last, own = (letter * 40 for letter in "cdef")
    told = [replace(ran(count, PLANNED), environment={"git_commit": at}) for count, at in enumerate((first, later, last, later))]
    apart = replace(ran(4, PLANNED), environment={"git_commit": later})
    apart = replace(apart, trial=apart.trial.model_copy(update={"commit": own}))
    one = sweep(*told, apart, ran(5, PLANNED), git={"commit": first, "dirty": False})
    assert other_commits(one) == {later: [told[1], told[3]], last: [told[2]]}
    assert other_commits(replace(one, plan=one.plan.model_copy(update={"git": {}}))) == {}, "no plan's commit: nothing is another"
