"""The folder of a results page, from begun to in place: what is there stays until the new page is whole, whoever is killed in between."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.config.error_text import why_not_written
from experiments.config.errors import UserError


class PublishError(UserError):
    """Something cannot be published. The message names each file and what is wrong with it."""


@contextmanager
def new_page(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder`, for the block to write the page into; then it takes the place of the page that is there, which stays
    until then, or for good if the block raises. Locked, so that another command knows that it is being written.

    Raises PublishError where none can be made there, and while another command writes the page.
    """
    temporary, lock = _begin(folder)
    try:
        yield temporary
        old = temporary.with_suffix(".old")
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)


def clear_leftovers(folder: Path) -> None:
    """Remove what a command that was killed left beside the page `folder`; a page that it had moved away comes back.

    Raises PublishError, and removes nothing, while another command writes the page; OSError.
    """
    if folder.parent.is_dir():
        with _alone_beside(folder):
            _clear(folder)


def _begin(folder: Path) -> tuple[Path, int]:
    """The new page's folder, and a descriptor that holds its lock. Raises PublishError."""
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone_beside(folder):
            _clear(folder)  # another command may have begun the page since this one cleared
            temporary.mkdir()
            return temporary, _locked(temporary)
    except OSError as error:
        why = why_not_written(folder, error)
        raise PublishError(f"nothing was written: {folder} cannot be made ({why}); name a folder in one where you may write") from error


@contextmanager
def _alone_beside(folder: Path) -> Iterator[None]:
    """No other command begins or clears a page in the parent folder meanwhile: what is made and not locked yet looks like a leftover.

    The lock is the parent folder's own, so no file of it stays among the pages. Raises OSError.
    """
    lock = _locked(folder.parent)
    try:
        yield
    finally:
        os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that holds the lock of this folder until it is closed; waits for it. Raises OSError."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _clear(folder: Path) -> None:
    left = {end: list(folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.{end}")) for end in ("tmp", "old")}
    if any(_is_written(path) for path in left["tmp"]):
        raise PublishError(f"nothing was written: another command writes {folder} now; wait until it has ended")
    for path in left["old"]:
        if not folder.exists():
            path.rename(folder)
    for path in left["tmp"] + left["old"]:
        shutil.rmtree(path, ignore_errors=True)


def _is_written(temporary: Path) -> bool:
    """Whether a command holds this folder's lock."""
    try:
        lock = os.open(temporary, os.O_RDONLY)
    except FileNotFoundError:
        return False  # it has ended just now
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
