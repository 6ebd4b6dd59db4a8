"""What is advised of trials that ran other code than was planned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster import launchers
from cluster.launchers import Launch
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report import other_code
from tasks.report.other_code import what_mends
from tests.tasks.cell_support import row, workers
from tests.tasks.plan_support import SWEEP_ID, make_plan

HERE, PLANNED, RAN = "a" * 16, "b" * 16, "c" * 16
COMMIT = "d" * 40  # the one that git has, with the planned tree
ANEW = "measure all anew, and change no code meanwhile: `sweep run made_up`"


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_code, "source_tree", lambda: HERE)
    monkeypatch.setattr(other_code, "tree_at", lambda commit: PLANNED if commit == COMMIT else None)


def strays(folder: Path, launcher: Any = "local", **environment: Any) -> list[TrialRow]:
    """Two trials that ran the other tree, with a launch.json."""
    rows = [row(workers(number), environment={"tree": RAN, "git_commit": COMMIT, "git_dirty": True, **environment}) for number in (0, 1)]
    for one in rows:
        (folder / "trials" / one.trial.key).mkdir(parents=True)
        launchers.save(Launch(launcher=launcher, key=one.trial.key, attempt=1, id="1"), folder / "trials" / one.trial.key)
    return rows


def advised(folder: Path, rows: list[TrialRow], planned: str = PLANNED, **plan: Any) -> str:
    whole = make_plan([one.trial for one in rows], **{"sweep_id": SWEEP_ID, "command": "sweep run made_up", **plan})
    return what_mends(Sweep(folder, whole, rows), planned, rows)


@pytest.mark.parametrize("launcher", ["local", "ray_job"])
@pytest.mark.parametrize(
    ("planned", "git", "first"),
    [
        (HERE, {}, ""),
        (HERE, {"commit": COMMIT, "dirty": True}, ""),
        (PLANNED, {"commit": COMMIT, "dirty": False}, f"check out commit {COMMIT[:12]}, "),
        (PLANNED, {"commit": COMMIT, "dirty": True}, None),
        (PLANNED, {"commit": "e" * 40, "dirty": False}, None),
        (PLANNED, {}, None),
    ],
)
def test_a_resume_measures_them_again_where_the_planned_code_is_here_or_in_git(
    tmp_path: Path, planned: str, git: dict[str, Any], first: str | None, launcher: str
) -> None:
    rows = strays(tmp_path, launcher)
    folders = " ".join(f"trials/{one.trial.key}" for one in rows)
    again = f"{first}move their folders out of the sweep's, and `sweep resume {SWEEP_ID}` measures them again: {folders}; or "
    assert advised(tmp_path, rows, planned, git=git) == f"{'' if first is None else again}{ANEW}"


def test_what_was_not_started_by_this_program_or_has_a_commit_of_its_own_is_measured_in_another_sweep(tmp_path: Path) -> None:
    rows = strays(tmp_path)
    (tmp_path / "trials" / rows[1].trial.key / "launch.json").unlink()
    assert advised(tmp_path, rows, HERE) == ANEW
    own = [replace(one, trial=one.trial.model_copy(update={"commit": COMMIT})) for one in strays(tmp_path / "own")]
    assert advised(tmp_path / "own", own, HERE) == ANEW


def test_a_commit_that_git_lacks_is_to_be_fetched(tmp_path: Path) -> None:
    rows = strays(tmp_path, git_dirty=False, git_commit="e" * 40)
    fetch = f"git here does not have commit {'e' * 40}, at which they ran: fetch it, since they may import the same at both"
    assert advised(tmp_path, rows) == fetch
    rows[0] = replace(rows[0], environment={**rows[0].environment, "git_commit": "f" * 40})
    assert advised(tmp_path, rows) == ANEW, "they ran at two"
    assert advised(tmp_path, [replace(one, environment={"tree": RAN}) for one in rows]) == ANEW, "they ran at none that is known"


def test_a_campaign_measures_its_sweep_anew_under_a_state_of_its_own(tmp_path: Path) -> None:
    """Its command alone goes on with the sweep, which has ended."""
    plan = {"command": "sweep campaign autumn --sweep x", "labels": {"sweep.campaign": "autumn"}}
    told = advised(tmp_path, strays(tmp_path, "ray_job"), **plan)
    assert told == f"measure all anew, and change no code meanwhile: `sweep campaign autumn --sweep x --state {SWEEP_ID[-4:]}`"
