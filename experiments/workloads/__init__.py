"""Workloads: one file or folder each, found by its name, here or in the workloads/ of a $SWEEPBENCH_EXTRA folder.

A workload exports `Parameters`, a subclass of TrainingParameters, and `build(context)`. It imports torch and transformers only inside
functions, so that its parameters can be read where neither is installed. Files that start with _ are shared code, not workloads.
"""

from __future__ import annotations

import importlib
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from experiments.config.errors import ConfigError, choose
from experiments.config.paths import extra_folders
from experiments.parameters import TrainingParameters, work_parameters

_HERE = Path(__file__).resolve().parent
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


def names() -> list[str]:
    """All workloads, sorted. Raises ConfigError if two files give the same name or a name cannot be one."""
    return sorted(_files())


def load(name: str) -> ModuleType:
    """The workload's module. Raises ConfigError if there is none or it is not a workload."""
    files = _files()
    if name not in files:
        raise ConfigError.one("workloads", None, name, "unknown workload", choose(name, files))
    path, full = files[name], f"{__name__}.{name}"
    present = sys.modules.get(full)
    if present is not None and Path(str(present.__file__)).resolve() != _source(path):
        for stale in [module for module in sys.modules if module == full or module.startswith(f"{full}.")]:
            del sys.modules[stale]  # $SWEEPBENCH_EXTRA names other folders now
    try:
        module = importlib.import_module(full)
    except Exception as error:
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError.one(path, None, "", problem, "run it with python to see where") from error
    schema = getattr(module, "Parameters", None)
    if not (isinstance(schema, type) and issubclass(schema, TrainingParameters)):
        raise ConfigError.one(path, None, "Parameters", "is missing", "define `class Parameters(TrainingParameters)`")
    if not callable(getattr(module, "build", None)):
        raise ConfigError.one(path, None, "build", "is missing", "define `def build(context)`, which makes what is measured")
    for parameter in work_parameters(schema):
        if parameter not in schema.model_fields:
            raise ConfigError.one(path, None, "same_work", f"{parameter!r} is not a parameter", choose(parameter, schema.model_fields))
    return module


def is_extra(name: str) -> bool:
    """Whether the workload lies in a $SWEEPBENCH_EXTRA folder. Raises ConfigError as `names` does."""
    path = _files().get(name)
    return path is not None and path.parent != _HERE


def _source(path: Path) -> Path:
    """The file that is imported: a folder's __init__.py."""
    return path / "__init__.py" if path.is_dir() else path


def _files() -> dict[str, Path]:
    """Name -> file. Makes the extra folders importable as part of this package, in child processes too."""
    folders = [_HERE, *(folder / "workloads" for folder in extra_folders())]
    __path__[:] = [str(folder) for folder in folders]
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted([*folder.glob("*.py"), *(inner.parent for inner in folder.glob("*/__init__.py"))]):
            if path.name.startswith("_"):
                continue
            if not _NAME.match(path.stem):
                raise ConfigError.one(path, None, "", "cannot be the name of a workload", "use a-z, 0-9 and _, starting with a letter")
            if path.stem in paths:
                raise ConfigError.one(path, None, "", f"the workload {path.stem} is already in {paths[path.stem]}", "rename one of them")
            paths[path.stem] = path
    importlib.invalidate_caches()
    return paths


with suppress(ConfigError):  # said when a workload is asked for; here only so that a child process can import one
    _files()
