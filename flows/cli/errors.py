"""Every error that ends a command, as a line for the person who typed it: what is wrong, where, and what would be right."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path
from typing import Any

from experiments.config.errors import Problem, UserError


def of_use(error: Any) -> str:
    """What to print of a wrong option or argument, which typer found: which it is, what is wrong with it, and what is right."""
    command = error.ctx.command_path if error.ctx else "sweep"
    parameter, refused = getattr(error, "param", None), error.__cause__
    if parameter is None or not hasattr(refused, "errors"):  # pydantic's, of a value
        return f"{error.format_message().rstrip('.')}; `{command} --help` shows what it takes"
    from experiments.config.validate import say

    name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.human_readable_name.upper()
    problem, hint = say(refused.errors(include_url=False))
    return str(Problem(name, None, "", problem.rstrip("."), hint or f"`{command} --help` shows what it takes"))


def line_of(error: Exception) -> str:
    """What to print of an error. A UserError says it all; files and folders are named; of anything else the traceback goes to a file."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return _of_file(error)
    return f"{type(error).__name__}: {_first_line(error)}; this is unexpected: {_kept(error)}"


def _of_file(error: OSError) -> str:
    hints: dict[type[OSError], str] = {
        IsADirectoryError: "a folder is where a file should be: move it away",
        NotADirectoryError: "a file is where a folder should be: move it away",
        PermissionError: "give yourself the right to read and write there, or name another folder with SWEEPBENCH_RUNS",
        FileNotFoundError: "it was removed, or never written",
    }
    hint = hints.get(type(error), "see that its disk is there and has room")
    return f"{os.fsdecode(error.filename)}: {error.strerror or error}; {hint}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:300]


def _kept(error: Exception) -> str:
    """Keep the traceback, and say where; on a machine where no file can be written, say so."""
    from experiments.config.paths import runs_root

    path: Path = runs_root() / "errors" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError as problem:
        return f"its traceback could not be kept ({problem.strerror})"
    return f"its traceback is in {path}"
