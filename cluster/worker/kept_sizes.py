"""What a search for the largest batch found, kept for later trials of the same cell: they try that one size instead of searching anew, or
go on with a search that was cut off.

So all repeats of a cell measure the same size where it still fits, and a repeat takes one probe process. A file holds for one cell; it says
on which device and with which code its sizes were tried, and holds for nothing else. Each answer is kept as soon as it is there, beside
those of other searches of the cell that run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel, ConfigDict

from cluster.kept_files import kept_folder, make_private
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.json_file import read_model, sealed_text

SIZES = "sizes"  # the folder
# Of a probe's environment: what the memory of a step hangs on, beside the code and the cell's parameters
_ABOUT = ("device_name", "device_memory_bytes", "device_count", "world_size", "driver", "cuda", "alloc_conf", "image", "packages")
_WAIT_S = 10.0  # for another search, which keeps an answer meanwhile


class KeptSizes(BaseModel):
    """What a file holds. `answers`: size -> whether it fits, and the share of the device's memory that it used; null if unknown. Those of a
    search that is not over leave open what the largest size is."""

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


def about_of(environment: Mapping[str, Any], code: str | None) -> dict[str, Any]:
    """What sizes that were tried in this environment hold for. `code`: of what such a trial imports, as in its key; None if unknown."""
    return {**{name: environment.get(name) for name in _ABOUT}, "code": code}


def read_sizes(cell: str, say: Callable[[str], None]) -> KeptSizes | None:
    """What is kept of the cell; None where nothing is. What is wrong with it is said."""
    try:
        folder = kept_folder(SIZES)
        return read_model(folder / f"{cell}.json", KeptSizes, "the search starts anew") if folder else None
    except (DamagedFile, OSError) as error:
        say(f"batch_size max: what an earlier trial found cannot be read: {error}")
        return None


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
                others = _others(path, sizes.about, refuted)
                answers = {**others, **sizes.answers} if over else {**sizes.answers, **others}
                atomic_write(path, sealed_text(sizes.model_copy(update={"answers": answers})))
    except OSError as error:
        say(f"batch_size max: what was found cannot be kept: {error}")


def _others(path: Path, about: Mapping[str, Any], refuted: KeptSizes | None) -> dict[int, tuple[bool, float | None]]:
    """The answers that are kept and hold for the same. A damaged file has none: that was said when the search began, or will be."""
    try:
        there = read_model(path, KeptSizes, "the search starts anew")
    except DamagedFile:
        return {}
    if there is None or there.about != about:
        return {}
    old = refuted.answers if refuted else {}
    return {size: answer for size, answer in there.answers.items() if old.get(size) != answer}
