"""Every error that ends a command, as a line for the person who typed it: what is wrong, where, and what would be right."""

from __future__ import annotations

import difflib
import os
import re
import time
import traceback
from pathlib import Path
from typing import Any

from experiments.config.error_text import first_line
from experiments.config.errors import Problem, UserError

# what typer says without naming a parameter -> which word is wrong, what is wrong with it, and what may have been meant
_WORDS = (
    (r"No such command '(?P<name>.+?)'\.(?: Did you mean (?P<near>.+?)\?)?", "unknown command"),
    (r"Got unexpected extra argument\(s\) \((?P<name>.+)\)", "is more than the command takes"),
)


def of_use(error: Any) -> str:
    """What to print of a wrong command, option or argument, which typer found: which it is, what is wrong with it, and what is right."""
    name, problem, hint = _wrong(error)
    return str(Problem(name, None, "", problem, hint or f"`{error.ctx.command_path if error.ctx else 'sweep'} --help` shows what it takes"))


def _wrong(error: Any) -> tuple[str, str, str]:
    """(the option, argument or command, what is wrong with it, a hint or nothing). typer's classes are private: told by what they have."""
    option, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if option is not None:
        if not hasattr(error, "possibilities"):
            return option, "needs a value", f"write it as {option} VALUE"
        near = difflib.get_close_matches(option, error.possibilities or [], n=1)
        return option, "unknown option", f"did you mean {near[0]!r}?" if near else ""
    if parameter is not None:
        name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.name.rstrip("_").upper()
        return name, *_of_value(parameter, error)
    for pattern, problem in _WORDS:
        if found := re.fullmatch(pattern, error.message):
            meant = found.groupdict().get("near")
            return found["name"], problem, f"did you mean {meant}?" if meant else ""
    return "", error.format_message().rstrip("."), ""


def _of_value(parameter: Any, error: Any) -> tuple[str, str]:
    """(what is wrong with a parameter's value, a hint or nothing)."""
    if not hasattr(error.__cause__, "errors"):  # pydantic's, of a value
        return (error.message.rstrip("."), "") if error.message else ("is missing", "")
    from experiments.config.validate import say

    items = error.__cause__.errors(include_url=False)
    if choices := [str(getattr(choice, "value", choice)) for choice in parameter.type_descriptor.choices or ()]:
        items = [{**items[0], "type": "literal_error", "ctx": {"expected": " or ".join(map(repr, choices))}}]
    problem, hint = say(items)
    return problem.rstrip("."), hint


def line_of(error: Exception) -> str:
    """What to print of an error. A UserError says it all; files and folders are named; of anything else the traceback goes to a file."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return _of_file(error)
    return f"{type(error).__name__}: {first_line(error, empty='no message')}; this is unexpected: {_kept(error)}"


def _of_file(error: OSError) -> str:
    hints: dict[type[OSError], str] = {
        IsADirectoryError: "a folder is where a file should be: move it away",
        NotADirectoryError: "a file is where a folder should be: move it away",
        PermissionError: "give yourself the right to read and write there, or name another folder with SWEEPBENCH_RUNS",
        FileNotFoundError: "it was removed, was never written, or could not be made",
    }
    hint = hints.get(type(error), "see that its disk is there and has room")
    return f"{os.fsdecode(error.filename)}: {error.strerror or error}; {hint}"


def _kept(error: Exception) -> str:
    """Keep the traceback, and say where; on a machine where no file can be written, say so."""
    from experiments.config.paths import runs_root

    try:
        path: Path = runs_root() / "errors" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except (OSError, UserError) as problem:
        return f"its traceback could not be kept ({problem.strerror if isinstance(problem, OSError) else problem})"
    return f"its traceback is in {path}"
