"""How often the CPU quota of this process's cgroups was used up. Linux, cgroup v2 and v1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")


def quota_stats(own: Path = _SELF, mount: Path = _MOUNT) -> list[Path]:
    """The cpu.stat of each cgroup with a CPU quota that this process is in, itself or through a parent. Empty where none has one."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        return []
    found = []
    for _, controllers, path in lines:
        if not controllers:
            found += [folder for root in (mount, mount / "unified") for folder in _with_parents(root, path) if _has_quota(folder)]
        elif "cpu" in controllers.split(","):
            found += [folder for root in (mount / controllers, mount / "cpu") for folder in _with_parents(root, path) if _has_quota(folder)]
    return list(dict.fromkeys((folder / "cpu.stat").resolve() for folder in found))


def periods(stats: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """By file: periods of enforcement so far, and those in which the quota was used up (`nr_periods`, `nr_throttled`)."""
    result = {}
    for path in stats:
        try:
            values = dict(line.split() for line in path.read_text().splitlines())
            result[path] = int(values["nr_periods"]), int(values["nr_throttled"])
        except (OSError, ValueError, KeyError):
            continue
    return result


def throttled_share(before: Mapping[Path, tuple[int, int]], now: Mapping[Path, tuple[int, int]]) -> float:
    """Share of the periods between two readings in which a quota was used up, of the cgroup with most; 0 without a quota."""
    shares = [0.0]
    for path, (count, throttled) in now.items():
        if path in before and count > before[path][0]:
            shares.append((throttled - before[path][1]) / (count - before[path][0]))
    return round(min(1.0, max(shares)), 4)


def _with_parents(root: Path, path: str) -> list[Path]:
    """The cgroup's folder and its parents below `root`; `root` alone in a container, where the path is another machine's."""
    folder = root / path.strip("/")
    if not folder.is_dir():
        return [root] if root.is_dir() else []
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _has_quota(folder: Path) -> bool:
    """True for `cpu.max` other than `max <period>` (v2), or `cpu.cfs_quota_us` above 0 (v1; -1 is none)."""
    for name in ("cpu.max", "cpu.cfs_quota_us"):
        try:
            limit = (folder / name).read_text().split()[0]
        except (OSError, IndexError):
            continue
        return limit != "max" and int(limit) > 0
    return False
