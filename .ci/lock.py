"""Reads pip's installation report on standard input and prints requirements.lock: exact versions of the whole closure, one a line."""

import json
import re
import sys

HEADER = """\
# Written by `make lock` from pyproject.toml (dev extras included). Exact versions, no hashes: torch's CPU build, its CUDA build and its
# builds for other systems are different files of one version.
"""


def main() -> None:
    """Print the lock. Only names and versions of the report are used, so no index and no file name can get into it."""
    report = json.load(sys.stdin)
    versions = {}
    for item in report["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        versions[name] = item["metadata"]["version"].split("+")[0]  # torch's +cpu names a build, not a version
    versions.pop("sweepbench")
    # On Linux these follow from torch's CUDA build, which pins them itself; the CPU build does not have them. nvidia-ml-py is our own
    of_cuda = [name for name in versions if name.startswith(("nvidia-", "triton", "cuda-")) and name != "nvidia-ml-py"]
    for name in of_cuda:
        versions.pop(name)
    print(HEADER, end="")
    for name in sorted(versions):
        print(f"{name}=={versions[name]}")


if __name__ == "__main__":
    main()
