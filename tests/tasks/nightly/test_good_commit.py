"""Which night's commit tonight's is measured against, and why there may be none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.trial import Trial
from tasks.nightly.good_commit import GoodNight, Partners, Refused, clean_commit, good_night, partners
from tests.contracts import make_trial
from tests.tasks.nightly.night_support import DATES, TONIGHT, trials

FACTS = {"git_commit": "a" * 40, "git_dirty": "false", "code": "c1"}
GIT = {"commit": "b" * 40, "dirty": False}


def measured(date: str, **facts: str) -> Any:
    return trials("one", [date], facts={**FACTS, **facts})


def test_a_commit_is_known_where_all_trials_ran_it_without_changes() -> None:
    assert clean_commit(measured(DATES[0])) == "a" * 40
    assert clean_commit(measured(DATES[0], git_dirty="true")) is None
    assert clean_commit([*measured(DATES[0]), *measured(DATES[0], git_commit="b" * 40)]) is None
    assert clean_commit([]) is None
    assert clean_commit(trials("one", [DATES[0]])) is None, "a record that does not say whether it was clean"


def test_the_first_night_whose_commit_is_known_is_taken() -> None:
    past = {DATES[0]: measured(DATES[0]), DATES[1]: measured(DATES[1], git_dirty="true")}
    found = good_night([DATES[1], DATES[0]], past, measured(TONIGHT))
    assert found == GoodNight(DATES[0], "a" * 40, code_changed=False, environment_changed=False)
    assert good_night([], past, measured(TONIGHT)) is None
    only = good_night([DATES[1]], past, measured(TONIGHT))
    assert only is not None and (only.date, only.commit) == (DATES[1], None)


@pytest.mark.parametrize(
    ("facts", "code", "environment"),
    [
        ({}, False, False),
        ({"code": "c2"}, True, False),
        ({"driver": "2"}, False, True),
        ({"torch": "3.0"}, False, True),
        ({"git_commit": "b" * 40}, False, False),
        ({"host_cores": "9"}, False, False),
    ],
)
def test_what_changed_since_is_code_or_environment(facts: dict[str, str], code: bool, environment: bool) -> None:
    found = good_night([DATES[0]], {DATES[0]: measured(DATES[0])}, measured(TONIGHT, **facts))
    assert found is not None and (found.code_changed, found.environment_changed) == (code, environment)


def test_a_record_without_its_code_does_not_say_whether_it_changed() -> None:
    found = good_night([DATES[0]], {DATES[0]: trials("one", [DATES[0]])}, measured(TONIGHT))
    assert found is not None and found.code_changed is None


class Maker:
    """Trials of commits without their files. `code`: commit -> its code."""

    def __init__(self, **code: str) -> None:
        self.code = code

    def make(self, template: Trial, commit: str, side: str) -> Any:
        return SimpleNamespace(commit=commit, side=side, key_parts={"code": self.code.get(commit[0], commit)})

    def check(self, trials: Any) -> dict[str, str]:
        return {trial.commit: "tree" for trial in trials}


@pytest.fixture
def template(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr("tasks.nightly.good_commit.resolve", lambda commit: commit)
    return make_trial(tmp_path, "aaaa0000000000ff")


GOOD = GoodNight(DATES[0], "a" * 40, code_changed=True, environment_changed=False)


def test_both_sides_are_commits(template: Trial) -> None:
    found = partners(Maker(), template, GIT, GOOD)  # type: ignore[arg-type]
    assert isinstance(found, Partners)
    assert [(trial.commit[0], trial.side) for trial in (found.good, found.tonight)] == [("a", "good"), ("b", "tonight")]  # type: ignore[attr-defined,index]
    assert set(found.trees) == {"a" * 40, "b" * 40}


@pytest.mark.parametrize(
    ("git", "good", "commit", "why"),
    [
        (GIT, None, None, "no night of its baseline is left to compare with"),
        (GIT, GOOD, "e" * 40, "it runs commit eeeeeeeeeeee on every night"),
        ({}, GOOD, None, "tonight's code is of no commit"),
        ({**GIT, "dirty": True}, GOOD, None, "tonight's code differs from its commit bbbbbbbbbbbb"),
        (GIT, GoodNight(DATES[0], None, None, False), None, "no night of its baseline is known to have run one clean commit"),
        (GIT, GoodNight(DATES[0], "b" * 40, False, False), None, f"tonight's commit bbbbbbbbbbbb is that of {DATES[0]}"),
    ],
)
def test_where_nothing_can_be_paired_it_is_said(
    git: dict[str, Any], good: GoodNight | None, commit: str | None, why: str, template: Trial
) -> None:
    found = partners(Maker(), template.model_copy(update={"commit": commit}), git, good)  # type: ignore[arg-type]
    assert isinstance(found, Refused) and found.why.startswith(why)


def test_commits_that_change_nothing_of_a_cell_are_not_measured(template: Trial) -> None:
    found = partners(Maker(a="same", b="same"), template, GIT, GOOD)  # type: ignore[arg-type]
    assert found == Refused(f"the commits change nothing that it runs since aaaaaaaaaaaa of {DATES[0]}", True, False)
