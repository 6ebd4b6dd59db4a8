"""Writes a lock on standard output: exact versions of a whole closure, each with the SHA-256 of every file that pip may take for it.

`lock.py < report.json` takes the versions from pip's installation report; `lock.py LOCK` from a lock, to ask for its hashes anew.
The hashes come from the package index (PyPI, or $PIP_INDEX_URL): those of wheels for Python 3.11 and 3.12 on Linux, else of the source.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

INDEX = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
API = "application/vnd.pypi.simple.v1+json"  # PEP 691
# name-version(-build)-python-abi-platform.whl
WHEEL = re.compile(r"^[^-]+-(?P<version>[^-]+)(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl$")
PYTHONS = re.compile(r"^(?:py[23](?:\.py3)?|py3\d*|cp3(?:[2-9]|10|11|12)|cp311|cp312)$")
PLATFORMS = re.compile(r"^any$|linux.*_(?:x86_64|aarch64)(?:\.|$)")
NOT_MUSL = re.compile(r"musllinux")

HEADER = """\
# Written by `make lock` from pyproject.toml (extras dev and postgresql included): exact versions with the SHA-256 of their files, for
# `pip install --require-hashes --no-deps`. torch is in requirements-torch.lock, by version alone: its CPU build, its CUDA build and its
# builds for other systems are different files of one version.
"""


def main(arguments: list[str]) -> None:
    """Print the lock. Raises SystemExit for a version of which the index has no file that fits."""
    if arguments:
        text = Path(arguments[0]).read_text()
        header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
        versions = dict(re.findall(r"^([a-z0-9-]+)==([^\s\\]+)", text, re.M))
    else:
        header, versions = HEADER, closure(json.load(sys.stdin))
    versions.pop("torch", None)
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(versions, pool.map(hashes, versions, versions.values()), strict=True))
    if missing := [name for name, each in found.items() if not each]:
        raise SystemExit(f"{INDEX} has no file that fits of {', '.join(f'{name}=={versions[name]}' for name in missing)}")
    print(header, end="")
    for name in sorted(versions):
        print(" \\\n".join([f"{name}=={versions[name]}", *(f"    --hash=sha256:{each}" for each in found[name])]))


def closure(report: dict[str, Any]) -> dict[str, str]:
    """Name -> version in pip's report. Only names and versions are used, so no index and no file name can get into the lock."""
    versions = {}
    for item in report["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        versions[name] = item["metadata"]["version"].split("+")[0]  # torch's +cpu names a build, not a version
    versions.pop("sweepbench")
    # On Linux these follow from torch's CUDA build, which pins them itself; the CPU build does not have them. nvidia-ml-py is our own
    of_cuda = [name for name in versions if name.startswith(("nvidia-", "triton", "cuda-")) and name != "nvidia-ml-py"]
    return {name: version for name, version in versions.items() if name not in of_cuda}


def hashes(name: str, version: str) -> list[str]:
    """The SHA-256 of the files of a version that may be installed here, sorted."""
    request = urllib.request.Request(f"{INDEX.rstrip('/')}/{name}/", headers={"Accept": API})  # noqa: S310 - the index
    with urllib.request.urlopen(request, timeout=120) as reply:  # noqa: S310
        files = json.load(reply)["files"]
    wheels = {file["hashes"]["sha256"] for file in files if version in wheel_versions(file["filename"])}
    return sorted(wheels or {file["hashes"]["sha256"] for file in files if is_source(file["filename"], name, version)})


def wheel_versions(filename: str) -> Iterator[str]:
    """The version of a wheel for our Pythons and systems; nothing for any other file."""
    wheel = WHEEL.match(filename)
    if wheel and PYTHONS.match(wheel["python"]) and PLATFORMS.search(wheel["platform"]) and not NOT_MUSL.search(wheel["platform"]):
        yield wheel["version"]


def is_source(filename: str, name: str, version: str) -> bool:
    """Whether a file is the source distribution of a version."""
    return bool(re.match(rf"(?i){re.sub('-', '[-_.]', name)}-{re.escape(version)}(?:\.tar\.gz|\.zip)$", filename))


if __name__ == "__main__":
    main(sys.argv[1:])
