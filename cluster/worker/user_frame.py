"""Where in the user's code a crash began: `flowers.py:42 in loss: RuntimeError: no such class`."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from experiments.components.workload import DataError
from experiments.config.errors import ConfigError, UserError
from experiments.config.paths import REPOSITORY, extra_folders

Frame = tuple[str, int, str]  # file, line, function

_OURS = REPOSITORY / "experiments"
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (.+)$', re.M)
# What torch raises for an error of another process or thread (torch/_utils.py, ExceptionWrapper.reraise): its traceback is in the message
_CAUGHT = re.compile(r"Caught \w+ (in [^\n]+)\.\nOriginal Traceback \(most recent call last\):\n")
_SOURCE = re.compile(r"(?: +.*\n)*")  # below a frame: its line of code, and marks under it


def crash_reason(error: BaseException, wrappers: Sequence[BaseException]) -> str:
    """What ended a trial that crashed, after the deepest line of the user's own code on the way there, if there was one.

    `wrappers`: what was raised from the error or carries it, innermost first: where it itself knows no line of theirs, they may.
    The user's own code is workloads/ of the $SWEEPBENCH_EXTRA folders; where no line is of it, the workloads here and their components.
    """
    text = f"{type(error).__name__}: {error}"
    if caught := _CAUGHT.search(str(error)):
        text = f"{_last_error(str(error))} ({caught[1]})"
    if isinstance(error, UserError | DataError):
        return text  # it names the file or the option that a person has to mend
    place = next((found for one in (error, *wrappers) if (found := _place(list(_frames(one))))), None)
    return f"{place}: {text}" if place else text


def _frames(error: BaseException) -> Iterator[Frame]:
    """The frames that an error went through, outermost first; those of another process from the traceback in its message."""
    for frame, number in traceback.walk_tb(error.__traceback__):
        yield frame.f_code.co_filename, number, frame.f_code.co_name
    for found in _FRAME.finditer(str(error)):
        yield found[1], int(found[2]), found[3]


def _last_error(text: str) -> str:
    """What stands below the last frame of a traceback: the error and its message."""
    below = _FRAME.split(text)[-1].removeprefix("\n")
    source = _SOURCE.match(below)
    return below[source.end() if source else 0 :]


def _place(frames: Sequence[Frame]) -> str | None:
    """The deepest of these frames in the user's code, else in ours that does what a workload says."""
    extra: list[Path] = []
    with suppress(ConfigError):
        extra = [folder / "workloads" for folder in extra_folders()]
    for roots in ([(root, root) for root in extra], [(_OURS / "workloads", _OURS / "workloads"), (_OURS / "components", _OURS)]):
        for file, number, function in reversed(frames):
            for root, start in roots:
                if Path(file).is_relative_to(root):
                    where = f"{Path(file).relative_to(start)}:{number}"
                    return where if function == "<module>" else f"{where} in {function}"
    return None
