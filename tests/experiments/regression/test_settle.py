"""Pairs or history: which decides, and what is suspected."""

from __future__ import annotations

import pytest

from experiments.regression.settle import Judge, Suspect, can_pair, settle
from experiments.stats.verdict import Verdict

SLOWER, SAME, FASTER, UNDECIDED = Verdict.SLOWER, Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED


def test_only_a_known_change_of_code_can_be_paired() -> None:
    assert [can_pair(changed) for changed in (True, False, None)] == [True, False, False]


@pytest.mark.parametrize("history", Verdict)
@pytest.mark.parametrize("pairs", [SLOWER, FASTER])
@pytest.mark.parametrize("environment", [True, False])
def test_pairs_decide_about_the_code_whatever_history_says(history: Verdict, pairs: Verdict, environment: bool) -> None:
    found = settle(history, pairs, code_changed=True, environment_changed=environment)
    assert (found.verdict, found.judge, found.suspect) == (pairs, Judge.PAIRS, Suspect.CODE)


def test_what_both_commits_show_is_the_nodes_unless_the_environment_changed() -> None:
    node = settle(SLOWER, SAME, code_changed=True, environment_changed=False)
    assert (node.verdict, node.judge, node.suspect) == (SAME, Judge.PAIRS, Suspect.NODE) and "node" in node.why
    driver = settle(SLOWER, SAME, code_changed=True, environment_changed=True)
    assert (driver.verdict, driver.judge, driver.suspect) == (SLOWER, Judge.HISTORY, Suspect.ENVIRONMENT)
    calm = settle(UNDECIDED, SAME, code_changed=True, environment_changed=True)
    assert (calm.verdict, calm.judge, calm.suspect) == (SAME, Judge.PAIRS, Suspect.NONE)


def test_undecided_pairs_leave_a_cell_undecided_unless_its_environment_changed() -> None:
    found = settle(SLOWER, UNDECIDED, code_changed=True, environment_changed=False)
    assert (found.verdict, found.judge) == (UNDECIDED, Judge.PAIRS)
    driver = settle(SLOWER, UNDECIDED, code_changed=True, environment_changed=True)
    assert (driver.verdict, driver.judge, driver.suspect) == (SLOWER, Judge.HISTORY, Suspect.ENVIRONMENT)


@pytest.mark.parametrize(
    ("code", "environment", "suspect"),
    [
        (True, True, Suspect.ENVIRONMENT),
        (False, True, Suspect.ENVIRONMENT),
        (None, True, Suspect.ENVIRONMENT),
        (True, False, Suspect.CODE),
        (None, False, Suspect.CODE),
        (False, False, Suspect.NODE),
    ],
)
def test_without_pairs_history_judges_and_what_is_known_to_have_changed_is_suspected(
    code: bool | None, environment: bool, suspect: Suspect
) -> None:
    for history in (SLOWER, FASTER):
        found = settle(history, None, code_changed=code, environment_changed=environment)
        assert (found.verdict, found.judge, found.suspect, found.why) == (history, Judge.HISTORY, suspect, "")
    for history in (SAME, UNDECIDED):
        calm = settle(history, None, code_changed=code, environment_changed=environment)
        assert (calm.verdict, calm.judge, calm.suspect) == (history, Judge.HISTORY, Suspect.NONE)
