"""What is to be done about trials that ran other code than was planned, so that their sweep can be published."""

from __future__ import annotations

from collections.abc import Sequence

from cluster import launchers
from cluster.source_tree import source_tree
from cluster.trial_layout import TRIALS
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.same_code import tree_at


def what_mends(sweep: Sweep, planned: str, rows: Sequence[TrialRow]) -> str:
    """A clause for these trials of a sweep, which ran another tree than `planned`. Raises DamagedFile for a launch.json."""
    if missing := _commit_to_fetch(rows):
        return f"git here does not have commit {missing}, at which they ran: fetch it, since they may import the same at both"
    again = _again_in_place(sweep, planned, rows)
    return "; or ".join(way for way in (again, _all_anew(sweep)) if way) or "no command measures them again in this sweep"


def _commit_to_fetch(rows: Sequence[TrialRow]) -> str:
    """The commit that all of them ran, without changes, and that git here lacks: with it they may count. Empty for none."""
    told = [(str(row.environment.get("git_commit") or ""), row.environment.get("git_dirty") or row.trial.commit) for row in rows]
    commits = {commit for commit, _ in told}
    if len(commits) != 1 or "" in commits or any(changed for _, changed in told):
        return ""
    commit = commits.pop()
    return commit if tree_at(commit) is None else ""


def _again_in_place(sweep: Sweep, planned: str, rows: Sequence[TrialRow]) -> str:
    """How a resume measures these trials alone, also on a cluster, which keeps what they wrote: a new attempt gets another number there
    (`Launcher.free_number`). Empty where the planned code is not to be had, and for trials that this program did not start."""
    plan = sweep.plan
    if any(row.trial.commit for row in rows) or not all(_was_started(sweep, row) for row in rows):
        return ""
    commit = "" if plan.git.get("dirty") else str(plan.git.get("commit") or "")
    if source_tree() == planned:
        where = ""
    elif commit and tree_at(commit) == planned:
        where = f"check out commit {commit[:12]}, "
    else:
        return ""
    folders = " ".join(f"{TRIALS}/{row.trial.key}" for row in rows)
    return f"{where}move their folders out of the sweep's, and `sweep resume {sweep.sweep_id}` measures them again: {folders}"


def _was_started(sweep: Sweep, row: TrialRow) -> bool:
    return launchers.load(sweep.dir / TRIALS / row.trial.key) is not None


def _all_anew(sweep: Sweep) -> str:
    """The command that measures the whole sweep in another one. A night's goes on with it; a campaign's does so under its own state."""
    if sweep.plan.is_night:
        return ""
    state = f" --state {sweep.sweep_id[-4:]}" if sweep.plan.campaign is not None else ""
    return f"measure all anew, and change no code meanwhile: `{sweep.plan.command}{state}`"
