"""Which packages differ between trials, and where a report says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.metrics import metric_of
from tasks.analysis.cell import Cell
from tasks.analysis.confounders import confounders
from tasks.analysis.packages import ABSENT, differing
from tasks.analysis.trial_row import TrialRow
from tasks.report.sections.environments import environments_table
from tests.tasks.cell_support import row

OLD, NEW = {"torch": "2.12", "hub": "1.0", "same": "3"}, {"torch": "2.13", "hub": "1.1", "same": "3", "extra": "1"}


def ran(packages: Mapping[str, str], name: str | None = None, **axes: Any) -> TrialRow:
    one = row({"pool": "cpu", **axes}, environment={"torch": packages.get("torch"), "packages": str(packages), "python": "3.11"})
    return replace(one, packages=packages, trial=one.trial.model_copy(update={"environment": name}))


def cells(*rows: TrialRow) -> list[Cell]:
    return [Cell([one], metric_of("throughput")) for one in rows]


def test_only_what_differs_is_named_and_nothing_of_trials_that_do_not_tell() -> None:
    assert differing([ran(OLD), ran(NEW)]) == ["extra", "hub", "torch"]
    assert differing([ran(OLD), ran(OLD)]) == differing([]) == []
    assert differing([ran(OLD), ran({})]) == []


def test_confounders_name_each_package_once_and_no_digest() -> None:
    a, b = cells(ran(OLD, batch_size=1), ran(NEW, batch_size=2))
    found = {name: [value for value, _ in groups] for name, groups in confounders([a, b])}
    assert found == {"torch": ["2.12", "2.13"], "extra": [ABSENT, "1"], "hub": ["1.0", "1.1"]}


def test_very_many_packages_are_one_entry() -> None:
    old, new = ({f"p{number:02d}": version for number in range(14)} for version in ("1", "2"))
    (name, groups), *rest = [entry for entry in confounders(cells(ran(old, batch_size=1), ran(new, batch_size=2))) if entry[0] != "torch"]
    assert (name, rest) == ("packages", [])
    assert groups[0][0] == ", ".join(f"p{number:02d} 1" for number in range(12)) + " and 2 more that differ"


def test_between_environments_packages_are_what_is_compared() -> None:
    rows = [ran(OLD, environment="default"), ran(NEW, "new", environment="new")]
    assert confounders(cells(*rows)) == []
    table = environments_table(rows)
    assert (list(table.header), [list(one) for one in table.rows]) == (
        ["package", "default", "new"],
        [["extra", ABSENT, "1"], ["hub", "1.0", "1.1"], ["torch", "2.12", "2.13"]],
    )
    assert not environments_table(rows[:1]).rows


def test_between_commits_the_code_is_what_is_compared() -> None:
    states = [{"git_commit": "a", "tree": "1", "git_dirty": True}, {"git_commit": "b", "tree": "2", "git_dirty": False}]
    rows = [row({"pool": "cpu", "commit": name}, environment=state) for name, state in zip(("worktree", "main"), states, strict=True)]
    assert confounders(cells(*rows)) == []
