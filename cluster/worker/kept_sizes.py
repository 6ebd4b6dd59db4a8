"""What a search for the largest batch found, kept for later trials of the same cell: they try that one size instead of searching anew, or
go on with a search that was cut off.

So all repeats of a cell measure the same size where it still fits, and a repeat takes one probe process. A file is of one cell. For each
device and code that it was searched on and with it has the sizes that were tried, which hold for nothing else. Each answer is kept as soon
as it is there, beside those of other searches of the cell that run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel, ConfigDict

from cluster.kept_files import kept_folder, make_private
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model, sealed_text

SIZES = "batch-sizes"  # the folder
MOST = 8  # devices and codes of a cell whose sizes are kept: those that were searched last
# Of a probe's environment: what the memory of a step hangs on, beside the code and the cell's parameters
_ABOUT = ("device_name", "device_memory_bytes", "device_count", "world_size", "driver", "cuda", "alloc_conf", "image", "packages")
_WAIT_S = 10.0  # for another search, which keeps an answer meanwhile


class KeptSizes(BaseModel):
    """What was found on one device with one code, `about`. `answers`: size -> whether it fits, and the share of the device's memory that it
    used; null if unknown. Those of a search that is not over leave open what the largest size is."""

    model_config = ConfigDict(extra="forbid")

    about: dict[str, str | float | bool | None]
    answers: dict[int, tuple[bool, float | None]]

    @property
    def largest(self) -> int:
        """The largest size that fits; 0 if none does."""
        return max((size for size, (fits, _) in self.answers.items() if fits), default=0)

    @property
    def too_large(self) -> int | None:
        """The smallest size above the largest that does not fit; None if none was tried. Below it another search may have been wrong."""
        return min((size for size, (fits, _) in self.answers.items() if not fits and size > self.largest), default=None)


class _File(BaseModel):
    """What is kept of a cell, what was searched last at the end."""

    model_config = ConfigDict(extra="forbid")

    kept: list[KeptSizes]


def about_of(environment: Mapping[str, Any], code: str | None) -> dict[str, Any]:
    """What sizes that were tried in this environment hold for. `code`: of what such a trial imports, as in its key; None if unknown."""
    return {**{name: environment.get(name) for name in _ABOUT}, "code": code}


def read_sizes(cell: str, say: Callable[[str], None]) -> list[KeptSizes]:
    """What is kept of the cell, what was searched last at the end; empty where nothing is. What is wrong with it is said."""
    try:
        folder = kept_folder(SIZES)
        return _read(folder / f"{cell}.json") if folder else []
    except (DamagedFile, OSError) as error:
        say(f"batch_size max: what an earlier trial found cannot be read: {error}")
        return []


def keep_sizes(cell: str, sizes: KeptSizes, say: Callable[[str], None], *, over: bool = False, refuted: KeptSizes | None = None) -> None:
    """Keep it for later trials, where anything is kept, beside what other searches of the cell kept meanwhile. That it fails is said.

    `over`: the search has ended, so its answer for a size that another one tried too counts: what is kept then tells that it has ended.
    `refuted`: what was kept and does not hold any more; none of it stays.
    """
    try:
        if folder := kept_folder(SIZES):
            make_private(folder)
            with FileLock(folder / f"{cell}.lock", timeout=_WAIT_S):
                path = folder / f"{cell}.json"
                there = _there(path)
                others = _others(there, sizes.about, refuted)
                answers = {**others, **sizes.answers} if over else {**sizes.answers, **others}
                apart = [one for one in there if one.about != sizes.about]
                atomic_write(path, sealed_text(_File(kept=[*apart, sizes.model_copy(update={"answers": answers})][-MOST:])))
    except OSError as error:
        say(f"batch_size max: what was found cannot be kept: {error}")


def _read(path: Path) -> list[KeptSizes]:
    file = read_model(path, _File, "the search starts anew")
    return file.kept if file else []


def _there(path: Path) -> list[KeptSizes]:
    """As `_read`. A damaged file has nothing: that was said when the search began, or will be."""
    try:
        return _read(path)
    except DamagedFile:
        return []


def _others(there: Sequence[KeptSizes], about: Mapping[str, Any], refuted: KeptSizes | None) -> dict[int, tuple[bool, float | None]]:
    """The answers that are kept and hold for the same."""
    old = refuted.answers if refuted and refuted.about == about else {}
    same = (one.answers for one in there if one.about == about)
    return {size: answer for answers in same for size, answer in answers.items() if old.get(size) != answer}
