"""Build environments into runs/.environments/<digest>, each once: a venv, and what its file names, by pip or uv.

An environment usually lies over the packages of the Python that it is made from: a .pth file shows them to its own, and only what differs
is installed. A file whose first line is `# base: none` names everything, and sees nothing else; there uv is taken if it is on PATH (it
does not look at packages that a .pth file shows, so it would install all of torch again for the others).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from cluster.environments.recipe import Recipe
from cluster.packages import installed_in
from experiments.atomic_file import atomic_write
from experiments.config.errors import ConfigError
from experiments.config.paths import REPOSITORY, runs_root

COMPLETE = "environment.json"  # in an environment's folder, written last: a folder without it is what a killed build left
_BASE = "base-of-sweepbench.pth"
_CHECK = "import cluster.worker.main, cluster.worker.trial_session, cluster.worker.ray_train, ray.train.torch"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """An environment that is there. `packages`: all that its Python sees; `own`: those that were installed into it."""

    digest: str
    python: str
    python_version: str
    packages: dict[str, str]
    own: dict[str, str]


def folder_of(digest: str) -> Path:
    """Where the environment of this digest lies, or would."""
    return runs_root() / ".environments" / digest


def python_of(digest: str) -> Path:
    """Its executable, whether it is there or not."""
    return folder_of(digest) / "bin" / "python"


def find(digest: str) -> Environment | None:
    """The environment if it was built whole; None else."""
    try:
        content = json.loads((folder_of(digest) / COMPLETE).read_text())
        return Environment(digest, str(python_of(digest)), content["python"], content["packages"], content["own"])
    except (OSError, ValueError, KeyError):
        return None


def build(recipe: Recipe, say: Say = lambda text: None) -> Environment:
    """The recipe's environment, built if it is not there; two processes build it once. `say`: told of the progress.

    Raises ConfigError that names the file, the line where pip names it, and what pip said; nothing is left of what failed.
    """
    if found := find(recipe.digest):
        return found
    folder = folder_of(recipe.digest)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"environment {recipe.name}: another process builds it; waiting")
        lock.acquire()
    try:
        return find(recipe.digest) or _build(recipe, folder, say)
    finally:
        lock.release()


def _build(recipe: Recipe, folder: Path, say: Say) -> Environment:
    """Make the folder, and its mark last. Raises ConfigError."""
    shutil.rmtree(folder, ignore_errors=True)  # of a build that was killed
    say(f"environment {recipe.name}: building it from {recipe.file} into {folder}")
    began = time.monotonic()
    try:
        _run(recipe, [recipe.python, "-m", "venv", "--without-pip", str(folder)], "no venv could be made")
        python = folder / "bin" / "python"
        packages = Path(_asked(recipe, python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
        if not recipe.alone:
            base = _asked(recipe, Path(recipe.python), "import sysconfig; print(*{sysconfig.get_path(k) for k in ('purelib', 'platlib')})")
            (packages / _BASE).write_text("\n".join(base.split()) + "\n")
        _install(recipe, python)
        _run(recipe, [str(python), "-P", "-c", _CHECK], "a trial cannot start in it")
        seen = json.loads(_run(recipe, [str(python), "-P", "-m", "cluster.packages"], "its packages cannot be listed"))
        content = {"name": recipe.name, "file": str(recipe.file), **seen, "own": installed_in(packages)}
        atomic_write(folder / COMPLETE, json.dumps(content, indent=1))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    made = find(recipe.digest)
    assert made is not None
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    own = ", ".join(f"{name} {version}" for name, version in list(made.own.items())[:6]) + (" ..." if len(made.own) > 6 else "")
    say(f"environment {recipe.name}: built in {time.monotonic() - began:.0f} s, {size / 2**20:.0f} MiB: {own}")
    return made


def _install(recipe: Recipe, python: Path) -> None:
    uv = shutil.which("uv") if recipe.alone else None
    if uv:
        _run(recipe, [uv, "pip", "install", "--python", str(python), "-r", str(recipe.file)], "uv cannot install it")
        return
    # Whether all else of this Python goes with it nobody is told: pip would read some hundred packages for that, seconds
    quiet = ["--disable-pip-version-check", "--no-input", "--quiet", "--no-warn-conflicts"]
    command = [recipe.python, "-m", "pip", "--python", str(python), "install", *quiet, "-r", str(recipe.file)]
    _run(recipe, command, "pip cannot install it")


def _asked(recipe: Recipe, python: Path, code: str) -> str:
    return _run(recipe, [str(python), "-P", "-c", code], f"{python} does not run").strip()


def _run(recipe: Recipe, command: list[str], problem: str) -> str:
    """The command's output. Raises ConfigError with the lines that say what went wrong."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
    environment |= {"PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(command, env=environment, cwd=recipe.file.parent, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError.one(recipe.file, None, "", f"{problem}: {error}", "name a Python that is there") from None
    if done.returncode == 0:
        return done.stdout
    raise ConfigError.one(recipe.file, *_blamed(recipe.file, done.stderr), problem, _why(done.stdout + done.stderr))


def _why(output: str) -> str:
    """The lines of pip's, uv's or Python's output that tell the cause."""
    output = re.sub(r"(from versions: )[^)]*, ((?:[^,)]*, ){4}[^,)]*\))", r"\1..., \2", output)  # of hundreds the newest
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|error|×|╰|\w*Error)", line)]
    return " / ".join((errors or lines)[-4:])[:800] or "it said nothing"


def _blamed(file: Path, output: str) -> tuple[int | None, str]:
    """(line, requirement) of the file that the output is about; (None, "") where it cannot be told."""
    lines = file.read_text().splitlines()
    if (named := re.search(r"\(line (\d+)\)", output)) and int(named[1]) <= len(lines):
        return int(named[1]), lines[int(named[1]) - 1].strip()
    for number, line in enumerate(lines, 1):
        wanted = line.split("#")[0].split(";")[0].split(" --hash")[0].strip()
        if wanted and not wanted.startswith("-") and wanted.replace(" ", "") in output.replace(" ", ""):
            return number, wanted
    return None, ""
