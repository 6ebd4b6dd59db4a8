"""Skeletons of a workload and a suite: what `sweep new` writes, whole and ready to run."""

from __future__ import annotations

import keyword
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from experiments.atomic_file import atomic_write
from experiments.config.errors import ConfigError, choose
from experiments.config.paths import EXTRA, extra_folders, named_extra_folders
from flows.cli.output import written_to
from flows.cli.schema import Kind, schema_text

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_WORKLOAD, _SUITE = re.compile(r"[a-z][a-z0-9_]{0,63}"), re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Data(StrEnum):
    """What the workload of a skeleton reads."""

    NONE = "none"  # batches made in memory
    CLASSES = "classes"  # images with classes
    PAIRS = "pairs"  # images with captions


@dataclass(frozen=True)
class Written:
    """The files of a skeleton; `export`: the command that makes them known, None where they are."""

    files: list[Path]
    export: str | None


def target_folder(to: Path | None) -> Path:
    """Where skeletons go: `to`, else the folder that $SWEEPBENCH_EXTRA names. Raises ConfigError for none, and for several.

    One that the variable names is made where it is not there: nothing else could be looked up before.
    """
    named = named_extra_folders()
    if to is None and len(named) != 1:
        problem = f"${EXTRA} names several folders ({', '.join(map(str, named))})" if named else f"is needed, since ${EXTRA} is not set"
        raise ConfigError.one("--to", None, "", problem, "give --to FOLDER, such as --to my-bench")
    folder = named[0] if to is None else to.resolve()
    if to is not None and folder.exists() and not folder.is_dir():
        raise ConfigError.one("--to", None, "", f"{to} is a file", "name a folder; it is made where it is not there")
    if folder in named and not folder.exists():
        with written_to(f"${EXTRA}", folder, "folder"):
            folder.mkdir(parents=True)
    return folder


def write_workload(name: str, data: Data, folder: Path) -> Written:
    """A workload, and a suite of the same name. Raises ConfigError for a name that is taken or cannot be one, OSError."""
    from experiments import workloads  # not with the module: every command imports it

    if not _WORKLOAD.fullmatch(name) or keyword.iskeyword(name):
        hint = "use a-z, 0-9 and _, starting with a letter; no word of Python's own"
        raise ConfigError.one("NAME", None, name, "cannot be the name of a workload", hint)
    if name in workloads.names():
        raise ConfigError.one("NAME", None, name, "is a workload already", "choose another name")
    _check_suite_name(name)
    kind = "".join(part.capitalize() for part in name.split("_")) or name.capitalize()
    texts = {f"workloads/{name}.py": _render(f"workload_{data}.py.jinja", name=name, kind=kind)}
    texts[f"suites/{name}.yaml"] = _suite(name, name, own_data=data is not Data.NONE, inference=False, loaders=data is not Data.NONE)
    return _write(folder, texts)


def write_suite(name: str, workload: str, folder: Path) -> Written:
    """A suite of a workload that is there. Raises ConfigError as `write_workload`, and for an unknown workload, OSError."""
    from experiments import workloads

    if not _SUITE.fullmatch(name):
        raise ConfigError.one("NAME", None, name, "cannot be the name of a suite", "use a-z, 0-9, _ and -, starting with a letter or digit")
    if workload not in workloads.names():
        raise ConfigError.one("--workload", None, workload, "unknown workload", choose(workload, workloads.names()))
    _check_suite_name(name)
    parameters = workloads.load(workload).Parameters
    own_data, inference = bool(getattr(parameters, "columns", None)), "execution" in parameters.model_fields
    axis = not inference and bool(getattr(parameters, "loads", True))  # whether who loads the batches is a question
    return _write(folder, {f"suites/{name}.yaml": _suite(name, workload, own_data=own_data, inference=inference, loaders=axis)})


def _check_suite_name(name: str) -> None:
    from experiments.spec.load import list_suites

    if name in {info.name for info in list_suites()}:
        raise ConfigError.one("NAME", None, name, "is a suite already", "choose another name")


def _suite(name: str, workload: str, *, own_data: bool, inference: bool, loaders: bool) -> str:
    return _render("suite.yaml.jinja", name=name, workload=workload, own_data=own_data, inference=inference, loaders=loaders)


def _render(template: str, **values: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # text for people to edit, and no page: nothing is escaped
    jinja = Environment(loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True)  # noqa: S701
    return jinja.get_template(template).render(**values)


def _write(folder: Path, texts: dict[str, str]) -> Written:
    """Write all files, or none where one is there. The schemas beside them are made anew."""
    there = [str(path) for name in texts if (path := folder / name).exists()]
    if there:
        hint = "nothing was written; choose another name, or remove it"
        raise ConfigError.one("NAME", None, "", f"{', '.join(there)} exists", hint)
    files = [folder / name for name in texts]
    for path, text in zip(files, texts.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text)
    before, known = os.environ.get(EXTRA), folder in extra_folders()
    with _named(folder):  # the schema is to know the workload that was just written
        for kind in (Kind.SUITE, Kind.POOLS):
            path = folder / "schemas" / f"{kind}.json"
            path.parent.mkdir(exist_ok=True)
            atomic_write(path, schema_text(kind))
            files.append(path)
    more = f":${EXTRA}" if before else ""
    return Written(files, None if known else f"export {EXTRA}={shlex.quote(str(folder))}{more}")


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """$SWEEPBENCH_EXTRA names `folder` too."""
    before = os.environ.get(EXTRA)
    if folder not in extra_folders():
        os.environ[EXTRA] = os.pathsep.join(filter(None, [str(folder), before]))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(EXTRA, None)
        else:
            os.environ[EXTRA] = before
