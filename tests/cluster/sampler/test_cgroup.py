"""CPU quotas of cgroups, v1 and v2, from files that the tests write."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.sampler.cgroup import periods, quota_stats, throttled_share


def group(folder: Path, name: str, limit: str, stat: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(limit)
    (folder / "cpu.stat").write_text(stat)
    return folder / "cpu.stat"


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "self"
    path.write_text(text)
    return path


def test_a_quota_of_a_parent_counts(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    group(mount / "pod" / "container", "cpu.max", "max 100000\n")
    pod = group(mount / "pod", "cpu.max", "200000 100000\n")
    group(mount / "elsewhere", "cpu.max", "100000 100000\n")
    assert quota_stats(own(tmp_path, "0::/pod/container\n"), mount) == [pod]


def test_version_1(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    limited = group(mount / "cpu,cpuacct" / "job", "cpu.cfs_quota_us", "150000\n")
    group(mount / "cpu,cpuacct", "cpu.cfs_quota_us", "-1\n")
    text = "5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/job\n0::/\n"
    assert quota_stats(own(tmp_path, text), mount) == [limited]


def test_in_a_container_the_path_is_not_there_and_the_mount_is_the_cgroup(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    stat = group(mount / "cpu", "cpu.cfs_quota_us", "50000\n")
    assert quota_stats(own(tmp_path, "4:cpu,cpuacct:/docker/0123\n"), mount) == [stat]


def test_no_quota_and_no_cgroups(tmp_path: Path) -> None:
    group(tmp_path / "cgroup", "cpu.max", "max 100000\n")
    assert quota_stats(own(tmp_path, "0::/\n"), tmp_path / "cgroup") == []
    assert quota_stats(tmp_path / "missing", tmp_path / "cgroup") == []
    assert throttled_share({}, {}) == 0.0


def test_the_share_of_periods(tmp_path: Path) -> None:
    stat = group(tmp_path, "cpu.max", "1 1", "usage_usec 9\nnr_periods 40\nnr_throttled 10\nthrottled_usec 7\n")
    before = periods([stat, tmp_path / "missing"])
    assert before == {stat: (40, 10)}
    stat.write_text("nr_periods 60\nnr_throttled 15\n")
    assert throttled_share(before, periods([stat])) == 0.25
    assert throttled_share(before, before) == 0.0  # no period has ended since
    other = Path("other")
    assert throttled_share({**before, other: (0, 0)}, {stat: (60, 15), other: (10, 4)}) == 0.4, "the cgroup with most"


@pytest.mark.parametrize("text", ["", "nr_periods x\nnr_throttled 1\n", "usage_usec 5\n", "a b c\n"])
def test_a_file_without_the_counts_is_left_out(tmp_path: Path, text: str) -> None:
    assert periods([group(tmp_path, "cpu.max", "1 1", text)]) == {}
