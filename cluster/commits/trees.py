"""The files of commits, in detached git worktrees: made when they are asked for, removed when no process uses them any more.

Whoever uses a worktree holds a lock on the file beside it (flock, shared). Trials inherit the open file, so a worktree stays while one
runs, also if its flow has died. A process removes the worktrees that it used when it ends, and what others left behind.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

from filelock import FileLock

from cluster.commits.resolve import CommitError, git
from experiments.config.paths import REPOSITORY, runs_root

NAME = ".worktrees"  # in runs/
_ENTRY = Path("cluster") / "worker" / "main.py"
_WAIT_S = 3.0  # for the last template process to end


class Worktrees:
    """The worktrees that this process uses. `folder`: where they lie; `root`: the checkout that they are of."""

    def __init__(self, folder: Path, root: Path = REPOSITORY) -> None:
        self.folder, self.root = folder, root
        self._held: dict[str, int] = {}  # commit -> descriptor of its lock
        self._lock = threading.Lock()

    def tree(self, commit: str) -> Path:
        """The files of a commit (40 hex digits). Raises CommitError if git cannot check them out or they cannot run a trial."""
        path = self.folder / commit
        with self._lock:
            if commit not in self._held:
                self._held[commit] = self._taken(path, commit)
        if not (path / _ENTRY).exists():  # else whatever is installed would run in its place
            raise CommitError(f"commit {commit[:12]} is too old: it has no {_ENTRY}, which trials start with")
        return path

    def _taken(self, path: Path, commit: str) -> int:
        """The descriptor of the lock on the commit's worktree, which is made if need be. Raises CommitError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            self._remove_unused()
            held = _open(path)
            fcntl.flock(held, fcntl.LOCK_SH)
            try:
                if not self._whole(path, commit):
                    self._remove(path)
                    git(self.root, "worktree", "add", "--detach", "--quiet", str(path), commit)
            except (OSError, subprocess.SubprocessError) as error:
                os.close(held)
                said = str(getattr(error, "stderr", None) or error).strip()
                raise CommitError(f"commit {commit[:12]} cannot be checked out into {path}: {said}") from None
        return held

    def descriptor(self, commit: str) -> int:
        """The lock that a trial of this commit has to inherit. KeyError if `tree` was not called."""
        return self._held[commit]

    def release(self) -> None:
        """Remove the worktrees that only this process uses, and those that others left; forget them all."""
        for held in self._held.values():
            os.close(held)
        used, self._held = bool(self._held), {}
        deadline = time.monotonic() + _WAIT_S
        while used and self.folder.exists():
            with FileLock(self.folder / ".lock"):
                if not self._remove_unused() or time.monotonic() > deadline:
                    return
            time.sleep(0.1)

    def _whole(self, path: Path, commit: str) -> bool:
        """Whether the worktree is that of the commit, with nothing changed: a process that was killed may have left a part of it."""
        try:
            return git(path, "rev-parse", "HEAD", "--show-toplevel").split("\n") == [commit, str(path.resolve())] and not git(
                path, "status", "--porcelain", "--untracked-files=no"
            )
        except (OSError, subprocess.SubprocessError):
            return False

    def _remove_unused(self) -> int:
        """Remove the worktrees that nobody uses; gives how many are left in use."""
        in_use = 0
        for lock in self.folder.glob("*.held"):
            held = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._remove(lock.with_suffix(""))
                lock.unlink(missing_ok=True)
            except BlockingIOError:
                in_use += 1
            finally:
                os.close(held)
        return in_use

    def _remove(self, path: Path) -> None:
        """The folder and git's entry of it, whatever is left of either. Other entries are not this program's, so nothing is pruned."""
        # Forced twice: also an entry that is half made, and locked
        remove = ["git", "-C", str(self.root), "worktree", "remove", "--force", "--force", str(path)]
        subprocess.run(remove, capture_output=True, check=False)
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
            subprocess.run(remove, capture_output=True, check=False)


def _open(path: Path) -> int:
    return os.open(path.with_suffix(".held"), os.O_RDWR | os.O_CREAT, 0o644)


_mine: dict[Path, Worktrees] = {}


def worktrees() -> Worktrees:
    """Those in runs/.worktrees, released when this process ends."""
    folder = runs_root() / NAME
    if folder not in _mine:
        _mine[folder] = Worktrees(folder)
        atexit.register(_mine[folder].release)
    return _mine[folder]
