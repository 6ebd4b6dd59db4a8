"""Shares and clocks of the host's cores, from counters that the tests set."""

from __future__ import annotations

import os
import threading
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.sampler import cpu
from cluster.sampler.cpu import CpuSource

FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
Times = namedtuple("Times", FIELDS)


class Host:
    """Two cores. `now`: s."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = dict.fromkeys(FIELDS, 100.0)
        self.cores = [dict.fromkeys(FIELDS, 50.0), dict.fromkeys(FIELDS, 50.0)]
        self.mhz = [3000.0, 2000.0]
        self.used = 0.0
        self.pids = frozenset({7, 8})
        self.allowed = {pid: {0, 1} for pid in (os.getpid(), 7, 8)}

    def used_s(self) -> float:
        return self.used

    def spend(self, seconds: float, **spent: float) -> None:
        self.now += seconds
        for name, value in spent.items():
            self.times[name] += value


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()

    def cpu_times(percpu: bool = False) -> Any:
        return [Times(**core) for core in host.cores] if percpu else Times(**host.times)

    monkeypatch.setattr(cpu.psutil, "cpu_times", cpu_times)
    monkeypatch.setattr(cpu.psutil, "cpu_freq", lambda percpu: [SimpleNamespace(current=mhz) for mhz in host.mhz])
    monkeypatch.setattr(cpu.cgroup, "quota_stats", list)
    monkeypatch.setattr(cpu, "_POLICY", tmp_path)
    monkeypatch.setattr(cpu, "_PRESSURE", tmp_path / "pressure")
    monkeypatch.setattr(cpu, "_allowed", lambda pid: frozenset(host.allowed.get(pid, ())))
    monkeypatch.setattr(cpu, "_ONLINE", tmp_path / "online")
    (tmp_path / "online").write_text("0-1\n")
    monkeypatch.setattr(cpu.psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(cpu.os, "getloadavg", lambda: (1.2345, 0.0, 0.0))
    return host


def source_of(host: Host) -> CpuSource:
    return CpuSource(host, lambda: host.now)  # type: ignore[arg-type]


def test_the_first_reading_has_no_shares(host: Host) -> None:
    assert source_of(host).read() == {
        "mhz": None,
        "mhz_min": None,
        "load1": 1.23,
        "steal": None,
        "others": None,
        "psi_some": None,
        "throttled": None,
    }


def test_shares_are_of_all_cores_time_since_the_reading_before(host: Host) -> None:
    source = source_of(host)
    source.read()
    host.spend(1.0, user=0.7, nice=0.1, system=0.1, irq=0.05, softirq=0.05, idle=0.6, iowait=0.2, steal=0.2, guest=0.7)
    host.used += 0.4
    reading = source.read()
    assert (reading["others"], reading["steal"]) == (pytest.approx((1.0 - 0.4) / 2.0), pytest.approx(0.1))
    host.spend(1.0, user=1.0, idle=1.0)
    host.used += 1.0
    assert source.read()["others"] == 0.0


def test_time_of_the_trial_that_comes_late_makes_a_sample_negative(host: Host) -> None:
    source = source_of(host)
    source.read()
    host.spend(0.1, user=0.1, idle=0.1)
    host.used += 0.15
    assert source.read()["others"] == pytest.approx(-0.25)


def test_a_kernel_that_counts_nothing(host: Host) -> None:
    host.times = dict.fromkeys(FIELDS, 0.0)
    source = source_of(host)
    source.read()
    host.now += 1.0
    reading = source.read()
    assert (reading["others"], reading["steal"]) == (None, None)
    assert source.missing()["cpu time"] == "the kernel counts none"


def test_pressure_is_a_share_of_the_clocks_time(host: Host, tmp_path: Path) -> None:
    pressure = tmp_path / "pressure"
    source = source_of(host)
    assert source.missing() == {"psi": f"{pressure} cannot be read"}
    pressure.write_text("some avg10=1.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
    assert source.missing() == {}
    source.read()
    pressure.write_text("some avg10=1.00 avg60=0.00 avg300=0.00 total=1125000\n")
    host.now += 0.5
    assert source.read()["psi_some"] == 0.25
    pressure.write_text("nonsense")
    host.now += 0.5
    assert source.read()["psi_some"] is None


def test_throttling_is_the_cgroups(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([{Path("a"): (10, 0)}, {Path("a"): (20, 5)}])
    monkeypatch.setattr(cpu.cgroup, "periods", lambda stats: next(counts))
    source = source_of(host)
    source.read()
    assert source.read()["throttled"] == 0.5


def test_clocks_are_those_of_busy_cores_and_read_once_a_second(host: Host) -> None:
    source = source_of(host)
    host.now = 0.9
    assert source.read()["mhz"] is None
    host.now = 1.0
    host.cores[0]["user"] += 0.75
    host.cores[0]["idle"] += 0.25
    host.cores[1]["user"] += 0.5
    host.cores[1]["idle"] += 0.5
    reading = source.read()
    assert (reading["mhz"], reading["mhz_min"]) == (pytest.approx((0.75 * 3000 + 0.5 * 2000) / 1.25), 2000.0)
    host.mhz = [1000.0, 1000.0]
    host.now = 1.9
    assert source.read()["mhz"] == reading["mhz"]


def test_idle_cores_clocks_do_not_count(host: Host) -> None:
    source = source_of(host)
    for core, busy in zip(host.cores, (0.49, 0.1), strict=True):
        core["user"] += busy
        core["iowait"] += 1 - busy
    host.now = 1.0
    assert source.read()["mhz"] is None
    host.cores[0]["user"] += 1.0
    host.cores[1]["idle"] += 1.0
    host.now = 2.0
    reading = source.read()
    assert (reading["mhz"], reading["mhz_min"]) == (3000.0, 3000.0)


def test_without_cpufreq_the_clock_is_unknown(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_POLICY", tmp_path / "missing")
    source = source_of(host)
    host.now = 2.0
    assert source.read()["mhz"] is None
    assert source.missing()["cpu frequency"] == "the kernel shows no cpufreq"


def held_reading(host: Host) -> dict[str, Any]:
    """A reading over a second in which the trial used 0.5 s of core 1, others 0.4 s of it, and nobody core 0."""
    source = source_of(host)
    source.read()
    host.spend(1.0, user=0.9, idle=1.1)
    host.used += 0.5
    for core, spent in zip(host.cores, ({"idle": 1.0}, {"user": 0.9, "steal": 0.05, "idle": 0.05}), strict=True):
        for name, seconds in spent.items():
            core[name] += seconds
    return source.read()


def test_of_a_trial_that_is_held_to_some_cores_shares_are_of_these(host: Host) -> None:
    host.allowed |= {8: {1}}  # 7 is what started it, and waits
    reading = held_reading(host)
    assert (reading["cores"], reading["others"], reading["steal"]) == (1, pytest.approx(0.4), pytest.approx(0.05))


def test_so_they_are_in_a_container_that_is_held_to_them(host: Host) -> None:
    host.allowed = {pid: {1} for pid in host.allowed}
    assert held_reading(host)["cores"] == 1


def test_ranks_that_are_held_to_cores_of_their_own_have_them_together(host: Host) -> None:
    host.allowed |= {7: {0}, 8: {1}}
    assert "cores" not in held_reading(host), "all of the host's"


def test_where_cores_are_off_or_processes_have_ended_shares_are_of_the_host(host: Host, tmp_path: Path) -> None:
    host.allowed = {os.getpid(): {0, 1}}
    assert held_reading(host)["others"] == pytest.approx(0.2)
    host.allowed |= {8: {1}}
    (tmp_path / "online").write_text("0,2\n")
    assert "cores" not in held_reading(host), "psutil's second core is not number 1"


def test_a_trial_that_was_held_just_now_has_no_shares_yet(host: Host) -> None:
    source = source_of(host)
    source.read()
    host.allowed |= {8: {1}}
    host.spend(0.5, user=0.5, idle=0.5)
    assert "cores" not in source.read(), "looked at once a second"
    host.spend(0.5, user=0.5, idle=0.5)
    first = source.read()
    assert (first["cores"], first["others"], first["steal"]) == (1, None, None)


def test_a_trial_that_is_held_no_longer_has_no_shares_yet(host: Host) -> None:
    """The host's times less those of one core would be no time's."""
    host.allowed |= {8: {1}}
    source = source_of(host)
    source.read()
    host.allowed |= {8: {0, 1}}
    host.spend(1.0, user=0.5, idle=1.5)
    reading = source.read()
    assert "cores" not in reading and (reading["others"], reading["steal"]) == (None, None)


def test_a_process_may_use_the_cores_of_all_its_threads() -> None:
    """As with OpenMP's: each held to one core, the first thread too."""
    everywhere = os.sched_getaffinity(0)
    if len(everywhere) < 2:
        pytest.skip("one core")
    held, go_on = threading.Event(), threading.Event()

    def other() -> None:
        held.set()
        go_on.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert held.wait(60)
        os.sched_setaffinity(0, {min(everywhere)})  # of this thread alone
        assert cpu._allowed(os.getpid()) == everywhere
    finally:
        os.sched_setaffinity(0, everywhere)
        go_on.set()
        thread.join()
    assert cpu._allowed(2**30) == frozenset()


def test_a_thread_that_ends_meanwhile_is_not_the_end_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a trial with many threads would now and then count as held to nothing, and its readings would have no shares."""
    asked, affinity = list[int](), os.sched_getaffinity

    def first_has_ended(thread: int) -> set[int]:
        asked.append(thread)
        if len(asked) == 1:
            raise ProcessLookupError
        return affinity(thread)

    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, args=(60,))
    thread.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "sched_getaffinity", first_has_ended)
            assert cpu._allowed(os.getpid()) == affinity(0)
        assert len(asked) > 1
    finally:
        go_on.set()
        thread.join()
