"""What an environment is made from: its file, the files that this names, and the Python and packages that it lies over."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cluster.packages import installed
from experiments.config.credentials import credentials_in
from experiments.config.errors import ConfigError, Problem, choose
from experiments.config.paths import REPOSITORY
from experiments.environment_files import environment_files
from experiments.trial import DEFAULT_ENVIRONMENT, digest

ALONE = "# base: none"  # the first line of a file that names every package
_INCLUDE = re.compile(r"^(?:-r|-c|--requirement|--constraint)[ =]*(.+)$")
_FIND = re.compile(r"^(?:-f|--find-links)[ =]*(.+)$")
_ASK_S = 120.0


@dataclass(frozen=True)
class Recipe:
    """An environment that can be made. `digest` changes whenever what is made may change."""

    name: str
    file: Path
    python: str  # the executable that its own is made from
    alone: bool  # nothing of that Python's packages is seen
    digest: str


@dataclass(frozen=True)
class Line:
    """One requirement or option of a file, its continuation lines joined, its comment removed."""

    file: Path
    number: int
    text: str


def recipe(name: str, python: str | None = None) -> Recipe:
    """The recipe of the environment `name` over the Python of a pool; None: over this one. Builds nothing.

    Raises ConfigError for an unknown name and for a file of which a line is not pinned or cannot be read; it lists every problem.
    """
    files = environment_files()
    if name not in files:
        raise ConfigError.one("environment", None, name, "unknown environment", choose(name, [DEFAULT_ENVIRONMENT, *files]))
    file, python = files[name], python or sys.executable
    lines = list(_lines(file))
    problems = [problem for line in lines if (problem := _problem(line))]
    if not lines:
        problems.append(Problem(str(file), None, "", "names no package", "write a line such as transformers==5.16.0"))
    if problems:
        raise ConfigError(problems)
    text = file.read_text()
    alone = text.split("\n", 1)[0].strip().lower() == ALONE
    base = _base(python)
    content = {
        "lines": [line.text for line in lines],
        "files": [digest(path.read_bytes().hex()) for path in _local_files(lines)],
        "python": [python, base["python"]],
        "base": None if alone else base["packages"],  # a package that is there already is not installed again
    }
    return Recipe(name, file, python, alone, digest(content))


def _lines(file: Path, above: tuple[Path, ...] = ()) -> Iterator[Line]:
    """The lines of a file and of those that it includes (-r, -c), comments left out. Raises ConfigError for a file that cannot be read."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.one(above[-1] if above else file, None, str(file), "cannot be read", str(error)) from None
    whole, first = "", 0
    for number, part in enumerate([*text.splitlines(), ""], 1):
        first = first if whole else number
        whole += re.sub(r"(^|\s)#.*$", "", part)
        if whole.endswith("\\"):
            whole = whole[:-1] + " "
            continue
        if line := whole.strip():
            yield Line(file, first, line)
            included = _INCLUDE.match(line)
            path = (file.parent / included[1].strip()).resolve() if included else None
            if path and "://" not in line and path not in (file, *above):
                yield from _lines(path, (*above, file))
        whole = ""


def _problem(line: Line) -> Problem | None:
    """Why the line does not say which version is installed, or may not be kept; None if it does, or is an option."""
    if problem := credentials_in(line.text):
        hint = "give it to pip by its own configuration or PIP_INDEX_URL: this file is copied and logged"
        return Problem(str(line.file), line.number, "", problem, hint)
    if line.text.startswith("-") or _local(line):
        pointing = line.text.startswith(("-e", "--editable"))
        hint = "give a wheel: what lies in a folder changes without a trace"
        return Problem(str(line.file), line.number, line.text, "is a folder, not a version", hint) if pointing else None
    from packaging.requirements import InvalidRequirement, Requirement  # only for a suite that names an environment

    text = re.split(r"\s--hash|\s--config-settings|\s--global-option", line.text)[0].strip()
    try:
        wanted = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        return Problem(str(line.file), line.number, line.text, f"is no requirement: {reason}", "write name==version")
    exact = any(part.operator == "===" or (part.operator == "==" and "*" not in part.version) for part in wanted.specifier)
    if exact or wanted.url:
        return None
    return Problem(str(line.file), line.number, line.text, "is not pinned", f"write {wanted.name}==<version>")


def _local(line: Line) -> Path | None:
    """The wheel or archive on this machine that the line names; None where it names none that is there."""
    path = line.file.parent / line.text.removeprefix("file://").split(" ")[0]
    return path if line.text.endswith((".whl", ".tar.gz", ".zip")) and path.is_file() else None


def _local_files(lines: list[Line]) -> list[Path]:
    """Archives on this machine that pip would read: those named, and those in folders given with --find-links."""
    files = [path for line in lines if (path := _local(line))]
    for line in lines:
        if (found := _FIND.match(line.text)) and (folder := line.file.parent / found[1].strip()).is_dir():
            files += sorted(path for path in folder.iterdir() if path.suffix in (".whl", ".gz", ".zip"))
    return files


@cache
def _base(python: str) -> dict[str, Any]:
    """{"python": version, "packages": name -> version} of an executable. Raises ConfigError if it cannot be asked."""
    if python == sys.executable:
        return {"python": ".".join(map(str, sys.version_info[:3])), "packages": installed()}
    try:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        command = [python, "-m", "cluster.packages"]
        done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=_ASK_S)
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError.one("pools", None, python, f"does not tell its packages: {error}", "name a Python that runs trials") from None
    return answer
