"""The parts of a trial's key besides its configuration: versions of the code and the libraries that run it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from cluster.environments.build import Environment
from cluster.pools.device_kinds import device_kinds
from cluster.pools.pool import Pool
from experiments.config.paths import REPOSITORY, extra_folders
from experiments.trial import digest
from tasks.sweep.import_closure import SourceTree, import_closure

_LIBRARIES = (
    "torch",
    "transformers",
    "diffusers",
    "ray",
    "numpy",
    "pillow",
    "tokenizers",
    "pyarrow",
    "torchao",
    "torch-optimi",
    "optimum-habana",
)


# A module may have a data table of the same name beside it, as peaks.py has cluster/devices/peaks.csv. The table counts as code: a trial
# writes the peak from it into its journal, for the MFU. These are the suffixes of the files sent to a cluster besides Python files. Suites,
# pools and the literature's numbers do not count: a trial's process reads none of them, and no module has their names.
_TABLES = (".csv", ".json", ".txt", ".yaml")


@cache
def code_version(workload: str, device: str, repository: Path = REPOSITORY) -> str:
    """16 hex digits over the names and contents of `code_files`, whose change can change a trial's result. Raises ConfigError."""
    files = code_files(workload, device, repository)
    return digest({name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()})


def code_files(workload: str, device: str, repository: Path = REPOSITORY) -> dict[str, Path]:
    """Name -> file of all modules of the repository and of the user's workloads that a trial's process imports, and their tables.

    The dotted names do not contain the location of the checkout, so every checkout gives the same key. A process loads its workload and
    its device by name, which parsing imports cannot follow. Both are therefore roots, as are the entry point and that of the sampler, a
    process that the trial starts. Raises ConfigError for an unknown workload or device, or a file that is not valid Python.
    """
    tree = _source_tree(repository)
    roots = ["cluster.worker.main", "cluster.sampler.main", f"experiments.workloads.{workload}", f"cluster.devices.{device}"]
    # A function may import another kind of device, for trials on that kind (cluster/worker/ray_train.py imports hpu)
    others = {f"cluster.devices.{kind}" for kind in device_kinds() if kind != device}
    closure = import_closure(tree, roots, skip_in_functions=lambda name: ".".join(name.split(".")[:3]) in others)
    tables = {
        f"{name}{suffix}": table for name, path in closure.items() for suffix in _TABLES if (table := path.with_suffix(suffix)).is_file()
    }
    return closure | tables


def code_changes(workload: str, device: str, a: Path, b: Path) -> list[str] | None:
    """The files, sorted, that a trial's process imports in one of two checkouts and that the other has not the same: what makes its code a
    different one. Paths are relative to the checkout; of the user's folders they are absolute. None where A has no such workload or device.

    Both are read by the rules of this code, so that a change of the rules alone changes nothing. Raises ConfigError as `code_files`.
    """
    own = _source_tree(a)
    if not all(own.find(f"{package}.{name}") for package, name in (("experiments.workloads", workload), ("cluster.devices", device))):
        return None
    one, other = (code_files(workload, device, tree) for tree in (a, b))
    changed = [name for name in sorted({*one, *other}) if _content(one.get(name)) != _content(other.get(name))]
    return [_inside(other[name], b) if name in other else _inside(one[name], a) for name in changed]


def _source_tree(repository: Path) -> SourceTree:
    """What a trial's process imports from: a checkout, and the user's workloads."""
    workloads = [repository / "experiments" / "workloads", *(folder / "workloads" for folder in extra_folders())]
    packages = {name: [repository / name] for name in ("cluster", "experiments")}
    return SourceTree({**packages, "experiments.workloads": workloads})


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


def _inside(path: Path, repository: Path) -> str:
    return str(path.relative_to(repository) if path.is_relative_to(repository) else path)


def libraries_version(pool: Pool, environment: Environment | None = None) -> str:
    """16 hex digits for the software: local library versions for an embedded pool, else the declared image and Python.

    In an environment those that are there, and all that was installed into it.
    """
    if environment:
        ours = {name: environment.packages.get(name) for name in _LIBRARIES}
        return digest({"python": environment.python_version, **ours, **environment.own})
    if not pool.embedded or pool.python:
        return digest({"image": pool.image, "python": pool.python})
    return digest({"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}})


@cache  # a plan asks for each trial; reading a library's metadata takes some ms
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
