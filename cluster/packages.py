"""The versions of all packages that this Python sees. `python -m cluster.packages` prints them, for a process of another Python."""

from __future__ import annotations

import json
import platform
import re
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def installed() -> dict[str, str]:
    """Name -> version, sorted, of every installed package; names as PyPI normalises them (torch-optimi). Some 50 ms, once a process.

    Of a package that lies in two folders of `sys.path`, the version that an import takes: the first.
    """
    found: dict[str, str] = {}
    for package in metadata.distributions():
        found.setdefault(normalised(package.name or ""), package.version)
    return {name: version for name, version in sorted(found.items()) if name and version}


def installed_in(folder: Path) -> dict[str, str]:
    """Name -> version, sorted, of the packages that lie in this folder of `sys.path`."""
    return {normalised(package.name): package.version for package in metadata.distributions(path=[str(folder)])}


def normalised(name: str) -> str:
    """The name as PyPI compares it: lower case, `-` for each run of `-`, `_` and `.` (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps({"python": platform.python_version(), "packages": installed()}))
