"""Attainable rates that trials share: how long each matrix product takes on a device in a bare loop, measured once.

A file holds for one kind of device at one setting of its clocks and power, one torch, and one meaning of float32 products (TF32 or not):
its name is a hash of these. What is wrong with a file is said, and it is measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field

from cluster.kept_files import make_private
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model, sealed_text
from experiments.trial import digest

About = Mapping[str, str | float | bool | None]
_WAIT_S = 10.0  # for another trial, which measures meanwhile


class KeptRates(BaseModel):
    """What a file holds. `about`: what it is of. `seconds`: of a call, by Product.key."""

    model_config = ConfigDict(extra="forbid", strict=True)

    about: dict[str, str | float | bool | None]
    seconds: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]


@contextmanager
def kept_rates(folder: Path | None, about: About, say: Callable[[str], None]) -> Iterator[dict[str, float]]:
    """The seconds of calls that are known of `about`, by Product.key; what the block adds is kept.

    Another process that measures in the same folder is waited for. Where nothing can be kept (`folder` is None, a lock or a disk fails)
    that is said and the dictionary is used by the block alone.
    """
    if folder is None:
        yield {}
        return
    lock = FileLock(folder / f"{digest(dict(about))}.lock")
    try:
        make_private(folder)
        lock.acquire(timeout=_WAIT_S)
    except (Timeout, OSError) as error:
        say(f"attainable rates: nothing is kept ({type(error).__name__}: {error})")
        yield {}
        return
    try:
        path = folder / f"{digest(dict(about))}.json"
        known = _read(path, about, say)
        before = len(known)
        yield known
        if len(known) > before:
            _write(path, KeptRates(about=dict(about), seconds=known), say)
    finally:
        lock.release()


def _read(path: Path, about: About, say: Callable[[str], None]) -> dict[str, float]:
    try:
        found = read_model(path, KeptRates, "it is measured anew")
    except DamagedFile as error:
        say(f"attainable rates: {error}")
        return {}
    if found is None:
        return {}
    if found.about != dict(about):
        say(f"attainable rates: {path} is of something else than its name says; it is measured anew")
        return {}
    return dict(found.seconds)


def _write(path: Path, rates: KeptRates, say: Callable[[str], None]) -> None:
    try:
        atomic_write(path, sealed_text(rates))
    except OSError as error:
        say(f"attainable rates: {path} cannot be written ({error.strerror})")
