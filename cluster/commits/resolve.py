"""From what a person calls a commit to its hash."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from cluster.git_state import git_state
from experiments.config.errors import UserError
from experiments.config.paths import REPOSITORY
from experiments.trial import WORKTREE

TIMEOUT_S = 120.0


class CommitError(UserError):
    """There is no such commit, or it cannot run a trial. The message says why, and what would be right."""


def git(root: Path, *arguments: str) -> str:
    """What git prints in the checkout `root`, stripped. Raises subprocess.CalledProcessError, OSError."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout.strip()


def resolve(name: str, root: Path = REPOSITORY) -> str:
    """The commit's 40 hex digits. Raises CommitError for what names none, and for no git."""
    try:
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        raise CommitError(f"{name!r} is no commit of {root}; `git log` and `git branch` show them") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise CommitError(f"git does not answer in {root}: {error}") from None


def resolve_clean(name: str, root: Path = REPOSITORY) -> str:
    """As `resolve`. Raises CommitError also where a name such as HEAD means the commit that is checked out, and the code here differs.

    A hash says which commit is meant, whatever lies here.
    """
    commit = resolve(name, root)
    spelled = len(name) >= 7 and commit.startswith(name.lower())
    if not spelled and (state := _state(root)).get("commit") == commit and state["dirty"]:
        hint = f"commit them; or write `{WORKTREE}` for the code as it lies here, or {commit[:12]} for the commit without the changes"
        raise CommitError(f"{name} is the commit that is checked out, and the code here has uncommitted changes: {hint}")
    return commit


def differing(a: str | None, b: str | None, root: Path = REPOSITORY) -> list[str]:
    """Names of all files that differ between two commits, None for the files as they lie here; files that git does not track are not seen.

    Raises CommitError where git cannot tell.
    """
    if a is None and b is None:
        return []
    try:
        told = git(root, "diff", "--name-only", "--no-renames", "-z", *(commit for commit in (a, b) if commit))
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise CommitError(f"git cannot compare {a or 'the files here'} with {b or 'the files here'}: {said}") from None
    return sorted(filter(None, told.split("\0")))


@cache
def _state(root: Path) -> dict[str, object]:
    return git_state(root)
