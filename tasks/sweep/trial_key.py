"""What a trial's key depends on besides its configuration: the code and the libraries that run it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

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


# A module's own table lies beside it under its name, as cluster/devices/peaks.csv does beside peaks.py. It counts: the peak that a trial
# writes into its journal, and so its MFU, come from there. These are the suffixes of what travels to a cluster beside Python files.
# Suites, pools and published numbers are not read by a trial's process, and belong to no module of that name.
_TABLES = (".csv", ".json", ".txt", ".yaml")


@cache
def code_version(workload: str, device: str) -> str:
    """16 hex digits over the files whose change can change a trial's result. Raises ConfigError, as `code_files`."""
    return digest({name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in code_files(workload, device).items()})


def code_files(workload: str, device: str, repository: Path = REPOSITORY) -> dict[str, Path]:
    """Name -> file of all that a trial's process imports of our code and of the user's workloads, and the tables beside it.

    The names are dotted and say nothing of where the files lie, so a checkout in another place gives the same key. The process chooses its
    workload and its device by name, which no reading of imports can follow: these two are roots beside its entry point. Raises ConfigError
    for a workload or device that is not there, or a file that is not Python.
    """
    workloads = [repository / "experiments" / "workloads", *(folder / "workloads" for folder in extra_folders())]
    packages = {name: [repository / name] for name in ("cluster", "experiments")}
    tree = SourceTree({**packages, "experiments.workloads": workloads})
    roots = ["cluster.worker.main", f"experiments.workloads.{workload}", f"cluster.devices.{device}"]
    # The file of another kind of device that some function imports is for trials on that kind (cluster/worker/ray_train.py and hpu)
    others = {f"cluster.devices.{kind}" for kind in device_kinds() if kind != device}
    closure = import_closure(tree, roots, skip_in_functions=lambda name: ".".join(name.split(".")[:3]) in others)
    tables = {
        f"{name}{suffix}": table for name, path in closure.items() for suffix in _TABLES if (table := path.with_suffix(suffix)).is_file()
    }
    return closure | tables


def libraries_version(pool: Pool) -> str:
    """The pool's software: library versions here for an embedded pool, else the pool's declared image and Python."""
    if not pool.embedded or pool.python:
        return digest({"image": pool.image, "python": pool.python})
    return digest({"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
