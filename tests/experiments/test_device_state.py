"""What a window's state is, from records written out here: means by time, the window's boundaries, gaps, caps, reasons to doubt."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.device_state import (
    NAMES,
    NO_CPU_TIME,
    NOT_COVERED,
    SET_BACK,
    SHORT_WINDOW,
    DeviceState,
    host_limits,
    measured_window,
    summarise_state,
)

HEADER = {"kind": "sampler", "t": 0.0, "attempt": 1, "device": "cuda", "hz": 10.0, "user": "ada", "emulated": False, "sources": {}}
CPU_HEADER = {**HEADER, "device": "cpu"}


def device(**values: Any) -> dict[str, Any]:
    plain = {"index": 0, "uuid": "GPU-1", "sm_mhz": 1800, "memory_mhz": 2600, "power_w": 650.0, "temperature_c": 60}
    return {**plain, "capped_by": [], "others": [], "neighbours": 0, **values}


def host(**values: Any) -> dict[str, Any]:
    return {"mhz": 3000.0, "mhz_min": 2900.0, "load1": 1.0, "steal": 0.0, "others": 0.0, "psi_some": 0.0, "throttled": 0.0, **values}


def states(count: int, cpu: dict[str, Any] | None = None, devices: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Records at 0.1, 0.2, ... s."""
    return [{"kind": "state", "t": (number + 1) / 10, "devices": devices or [], "cpu": cpu or host()} for number in range(count)]


def test_an_undisturbed_gpu() -> None:
    state = summarise_state([HEADER, *states(20, devices=[device()])], 0.0, 2.0)
    assert state == DeviceState(
        samples=20,
        coverage=pytest.approx(1.0),
        clock_mean_mhz=pytest.approx(1800),
        clock_min_mhz=1800,
        memory_clock_mhz=pytest.approx(2600),
        power_w=pytest.approx(650),
        temperature_c=60,
        capped_share=0.0,
        cpu_others_share=0.0,
        steal_share=0.0,
        psi_cpu_share=0.0,
        throttled_share=0.0,
        other_processes=0,
        neighbour_gpus=0,
    )


def test_readings_before_and_after_the_window_do_not_count() -> None:
    records = states(30, devices=[device()])
    for number in (*range(10), *range(20, 30)):
        records[number]["devices"] = [device(sm_mhz=300, capped_by=["thermal"], others=[{"pid": 1, "user": "x", "memory_bytes": 1}])]
    state = summarise_state([HEADER, *records], 1.0, 2.0)
    assert (state.samples, state.clock_min_mhz, state.capped_by, state.other_processes, state.disturbed) == (10, 1800, (), 0, None)


@pytest.mark.parametrize(("end", "power"), [(0.9, None), (0.99, None), (1.0, 700.0), (1.1, 700.0), (3.0, 700.0)])
def test_power_is_of_readings_that_hold_the_window_alone(end: float, power: float | None) -> None:
    """The window begins at 0. Before it the device drew 100 W, and does again after it; each reading is the mean of the second before."""
    records = states(40, devices=[device()])
    for record in records:
        of_window = min(record["t"], end) - min(max(record["t"] - 1, 0), end)
        record["devices"] = [device(power_w=100 + 600 * of_window)]
    state = summarise_state([HEADER, *records], 0.0, end)
    assert state.power_w == (None if power is None else pytest.approx(power))
    assert state.clock_mean_mhz == pytest.approx(1800), "clocks are those of the moment"


def test_a_record_across_the_boundary_counts_by_its_part_of_the_window() -> None:
    records = states(3, devices=[device()])
    records[0]["devices"] = [device(sm_mhz=1000)]  # stands for 0.0 to 0.1, of which 0.05 lies in the window
    state = summarise_state([HEADER, *records], 0.05, 0.3)
    assert state.clock_mean_mhz == pytest.approx((0.05 * 1000 + 0.2 * 1800) / 0.25)
    assert (state.samples, state.coverage) == (3, pytest.approx(1.0))


def test_a_window_between_two_records_has_the_later_ones_reading() -> None:
    state = summarise_state([HEADER, *states(3, devices=[device()])], 0.12, 0.14)
    assert (state.samples, state.coverage, state.clock_mean_mhz) == (1, pytest.approx(1.0), pytest.approx(1800))


def test_a_gap_is_not_covered_but_shares_hold_for_all_of_it() -> None:
    records = [*states(10, devices=[device()]), {"kind": "state", "t": 3.0, "devices": [device(sm_mhz=1000)], "cpu": host(others=0.3)}]
    state = summarise_state([HEADER, *records], 0.0, 3.0)
    assert (state.samples, state.gaps, state.coverage) == (11, 1, pytest.approx(0.5))  # 1.0 s, and 0.5 s of the 2 s before the last
    assert state.clock_mean_mhz == pytest.approx((1.0 * 1800 + 0.5 * 1000) / 1.5)
    assert state.cpu_others_share == pytest.approx(0.3 * 2 / 3)


@pytest.mark.parametrize(("since", "gaps"), [(0.5, 0), (0.501, 1)])
def test_up_to_half_a_second_is_no_gap(since: float, gaps: int) -> None:
    records = [{"kind": "state", "t": t, "devices": [device()], "cpu": host()} for t in (1.0, 1.0 + since)]
    state = summarise_state([HEADER, *records], 0.9, 1.0 + since)
    assert (state.gaps, state.coverage == pytest.approx(1.0)) == (gaps, not gaps)


def test_records_that_end_before_the_window_leave_it_unknown() -> None:
    unknown = DeviceState(not_judged="the sampler covered less than 90 % of the window")
    assert summarise_state([HEADER, *states(10, devices=[device()])], 1.0, 2.0) == unknown
    assert summarise_state([], 1.0, 2.0) == unknown
    assert DeviceState().coverage == 0.0 and DeviceState().disturbed is None


def test_a_record_after_the_clock_was_set_back_is_left_out() -> None:
    records = states(4, devices=[device()])
    records.insert(2, {"kind": "state", "t": 0.05, "devices": [device(sm_mhz=100)], "cpu": host()})
    assert summarise_state([HEADER, *records], 0.0, 0.4).clock_min_mhz == 1800


@pytest.mark.parametrize(("back_to", "set_back"), [(3.0, True), (0.5, True), (7.0, False), (7.1, False)])
def test_where_the_clock_was_set_back_in_the_window_nothing_is_judged(back_to: float, set_back: bool) -> None:
    """A window of 10 s, after 7 s of which the clock is set back: by the steps' times it lasted from 1.0 to `back_to` + 4 s, all of it
    covered by readings from before, and what disturbed its last seconds is not seen."""
    before = [{"kind": "state", "t": n / 10, "cpu": host()} for n in range(71)]
    after = [{"kind": "state", "t": back_to + n / 10, "cpu": host(others=0.9 if n > 40 else 0.0)} for n in range(60)]
    state = summarise_state([CPU_HEADER, *before, *after], 1.0, back_to + 4.0)
    assert state.coverage == pytest.approx(1.0) and state.disturbed is None
    assert state.not_judged == (SET_BACK if set_back else None)
    assert summarise_state([CPU_HEADER, *before, *after], 0.0, 0.4).not_judged == SHORT_WINDOW, "before it was set back"


def test_a_window_must_begin_before_it_ends() -> None:
    with pytest.raises(ValueError, match=r"must begin before it ends: 2\.0 to 2\.0"):
        summarise_state([HEADER], 2.0, 2.0)


def test_a_power_cap_is_named_and_is_no_disturbance() -> None:
    records = states(10, devices=[device(capped_by=["power"])])
    records[0]["devices"] = [device(capped_by=["idle"])]
    records[1]["devices"] = [device(capped_by=["applications clocks setting"])]
    records[2]["devices"] = [device(capped_by=["power", "sync boost"])]
    records[3]["devices"] = [device(capped_by=["display clock setting"])]
    records[4]["devices"] = [device(capped_by=["reason 0x200"])]  # which NVML may have one day: a cap until its word is known
    state = summarise_state([HEADER, *records], 0.0, 1.0)
    assert (state.capped_share, state.capped_by, state.disturbed) == (pytest.approx(0.7), ("power", "reason 0x200", "sync boost"), None)
    assert dict(state.caps) == {"power": pytest.approx(0.6), "sync boost": pytest.approx(0.1), "reason 0x200": pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("word", "text"), [("thermal", "thermal slowdown"), ("hardware slowdown", "hardware slowdown"), ("power brake", "power brake slowdown")]
)
def test_other_slow_downs_disturb(word: str, text: str) -> None:
    records = states(100, devices=[device()])
    for number in range(12):
        records[number]["devices"] = [device(capped_by=[word])]
    assert summarise_state([HEADER, *records], 0.0, 10.0).disturbed == f"{text} in 12 % of the samples (limit 1 %)"
    assert summarise_state([HEADER, *records], 1.2, 10.0).disturbed is None


def test_a_slow_down_of_one_gpu_is_not_hidden_by_another_that_is_capped_more_often() -> None:
    """Ranks wait for the slowest: the whole trial is slowed."""
    records = states(100)
    for number, record in enumerate(records):
        record["devices"] = [
            device(capped_by=["power"]),
            device(index=1, capped_by=["power", "thermal"] if number < 12 else ["power"][number % 2 :]),
        ]
    state = summarise_state([HEADER, *records], 0.0, 10.0)
    assert state.caps == (("power", pytest.approx(1.0)), ("thermal", pytest.approx(0.12)))
    assert (state.capped_share, state.disturbed) == (pytest.approx(1.0), "thermal slowdown in 12 % of the samples (limit 1 %)")


def test_one_sample_of_a_hundred_is_not_yet_a_disturbance() -> None:
    records = states(100, devices=[device()])
    records[0]["devices"] = [device(capped_by=["thermal"])]
    assert summarise_state([HEADER, *records], 0.0, 10.001).disturbed is None
    assert summarise_state([HEADER, *records], 0.0, 9.9).disturbed == "thermal slowdown in 1.01 % of the samples (limit 1 %)"


def test_another_process_on_the_device() -> None:
    records = states(10, devices=[device()])
    records[5]["devices"] = [device(others=[{"pid": 71, "user": "nobody", "memory_bytes": 512}])]
    state = summarise_state([HEADER, *records], 0.0, 1.0)
    assert state.other_processes == 1
    assert state.disturbed == "another process (pid 71, user nobody) was on the device"


def test_several_processes_of_the_same_user_and_of_one_unknown() -> None:
    others = [{"pid": 71, "user": None, "memory_bytes": None}, {"pid": 72, "user": "ada", "memory_bytes": None}]
    state = summarise_state([HEADER, *states(10, devices=[device(others=others)])], 0.0, 1.0)
    assert state.other_processes == 2
    assert state.disturbed == "2 other processes (one: pid 71) were on the device"


def test_other_gpus_in_use_are_counted_at_their_most_and_disturb_nothing() -> None:
    records = states(10, devices=[device(neighbours=1)])
    records[5]["devices"] = [device(neighbours=3)]
    state = summarise_state([HEADER, *records], 0.0, 1.0)
    assert (state.neighbour_gpus, state.disturbed) == (3, None)
    assert summarise_state([HEADER, *states(10, devices=[device(neighbours=None)])], 0.0, 1.0).neighbour_gpus is None


def test_the_worst_of_several_devices_counts() -> None:
    other = device(index=1, sm_mhz=1500, memory_mhz=2000, power_w=700.0, temperature_c=50, capped_by=["power"])
    state = summarise_state([HEADER, *states(10, devices=[device(), other])], 0.0, 1.0)
    assert (state.clock_mean_mhz, state.clock_min_mhz, state.memory_clock_mhz) == (pytest.approx(1500), 1500, pytest.approx(2000))
    assert (state.power_w, state.temperature_c, state.capped_share, state.capped_by) == (pytest.approx(700), 60, 1.0, ("power",))


@pytest.mark.parametrize(
    ("header", "limit", "text"),
    [
        (CPU_HEADER, 0.05, "other processes used {} % of the CPU (limit 5 %)"),
        (HEADER, 0.5, "other processes used {} % of the CPU (limit 50 %)"),
    ],
)
def test_other_work_on_the_cores(header: dict[str, Any], limit: float, text: str) -> None:
    at_limit = [header, *states(20, cpu=host(others=limit))]
    above = [header, *states(20, cpu=host(others=limit + 0.01))]
    assert summarise_state(at_limit, 0.0, 2.0).disturbed is None
    assert summarise_state(above, 0.0, 2.0).disturbed == text.format(f"{100 * (limit + 0.01):.3g}")


@pytest.mark.parametrize(
    ("kind", "cores", "limit"),
    [("cpu", None, 0.05), ("cpu", 1, 0.2), ("cpu", 2, 0.1), ("cpu", 4, 0.05), ("cpu", 64, 0.05), ("cuda", 2, 0.5), ("hpu", 64, 0.5)],
)
def test_on_few_cores_the_sweeps_own_flow_is_allowed_for(kind: str, cores: int | None, limit: float) -> None:
    header = {**HEADER, "device": kind, "cores": cores}
    assert summarise_state([header, *states(20, cpu=host(others=limit))], 0.0, 2.0).disturbed is None
    text = summarise_state([header, *states(20, cpu=host(others=limit + 0.001))], 0.0, 2.0).disturbed
    assert text == f"other processes used {100 * limit + 0.1:.3g} % of the CPU (limit {100 * limit:.3g} %)"
    assert host_limits(kind, cores).others == limit


def test_of_a_trial_that_is_held_to_some_cores_the_limit_is_of_these() -> None:
    """Of 64 cores it has four, of which others used 0.2 cores' time: 5 %, and 0.3 % of the host's. On two cores that is 10 %."""
    header = {**CPU_HEADER, "cores": 64}
    assert summarise_state([header, *states(20, cpu=host(cores=4, others=0.05))], 0.0, 2.0).disturbed is None
    text = "other processes used 75 % of the trial's 4 CPU cores (limit 5 %)"
    assert summarise_state([header, *states(20, cpu=host(cores=4, others=0.75))], 0.0, 2.0).disturbed == text
    assert summarise_state([header, *states(20, cpu=host(cores=2, others=0.1))], 0.0, 2.0).disturbed is None
    assert summarise_state([header, *states(20, cpu=host(cores=2, others=0.11))], 0.0, 2.0).disturbed is not None
    fewer = [*states(10, cpu=host(cores=4, others=0.1)), *states(20, cpu=host(cores=2, others=0.1))[10:]]
    assert summarise_state([header, *fewer], 0.0, 2.0).disturbed is None, "of the fewest that it was held to"


def test_who_used_the_cores_is_named_by_the_part_of_it_that_lies_in_the_window() -> None:
    def look(seconds: float, **used: float) -> dict[str, Any]:
        each = [{"pid": int(name[1:]), "name": name[0], "cpu_s": cpu_s, "sweep": name == "a1"} for name, cpu_s in used.items()]
        return {"seconds": seconds, "processes": each}

    records = states(30, cpu=host(others=0.4))
    records[4] |= {"busiest": look(0.5, a1=0.5)}  # to 0.5 s: before the window
    records[14] |= {"busiest": look(1.0, a1=0.4, b2=0.6, c3=0.1)}  # 0.5 to 1.5 s: half of it within
    records[19] |= {"busiest": look(0.5, b2=0.1, d4=0.06)}  # all of it
    records[24] |= {"busiest": look(0.5, c3=0.5)}  # 2.0 to 2.5 s: a fifth within
    records[29] |= {"busiest": look(0.5, e5=0.5)}  # after it
    state = summarise_state([CPU_HEADER, *records], 1.0, 2.1)
    assert (
        state.disturbed == "other processes used 40 % of the CPU (limit 5 %): b pid 2 0.4 s, a (of this sweep) pid 1 0.2 s, c pid 3 0.15 s"
    )
    records = [{**record, "cpu": host()} for record in records]
    assert summarise_state([CPU_HEADER, *records], 1.0, 2.1).disturbed is None, "not enough of it to disturb"


@pytest.mark.parametrize(("header", "limit"), [(CPU_HEADER, 0.01), (HEADER, 0.1)])
def test_time_that_the_hypervisor_took(header: dict[str, Any], limit: float) -> None:
    assert summarise_state([header, *states(20, cpu=host(steal=limit))], 0.0, 2.0).disturbed is None
    text = summarise_state([header, *states(20, cpu=host(steal=limit + 0.03))], 0.0, 2.0).disturbed
    assert text == f"the hypervisor took {100 * (limit + 0.03):.3g} % of CPU time (limit {100 * limit:.3g} %)"


def test_windows_shorter_than_a_second_are_not_judged_by_cpu_time() -> None:
    records = [CPU_HEADER, *states(20, cpu=host(others=0.9, steal=0.9))]
    assert summarise_state(records, 0.0, 0.99).disturbed is None
    assert summarise_state(records, 0.0, 0.99).cpu_others_share == pytest.approx(0.9)
    assert summarise_state(records, 0.0, 1.0).disturbed is not None


@pytest.mark.parametrize(
    ("seconds", "why"),
    [(0.99, SHORT_WINDOW), (1.0, None), (1.99, None), (2.01, NOT_COVERED)],  # 1.8 s are covered: 90.5 % of 1.99 s, 89.6 % of 2.01 s
)
def test_what_could_not_be_seen_is_not_judged(seconds: float, why: str | None) -> None:
    state = summarise_state([CPU_HEADER, *states(18)], 0.0, seconds)
    assert (state.disturbed, state.not_judged) == (None, why)
    assert (SHORT_WINDOW, NOT_COVERED) == ("the window was under 1 s", "the sampler covered less than 90 % of the window")


def test_without_cpu_time_nothing_is_judged_and_what_was_seen_disturbs_all_the_same() -> None:
    records = [HEADER, *states(20, cpu=host(others=None), devices=[device(others=[{"pid": 7, "user": None}])])]
    state = summarise_state(records, 0.0, 2.0)
    assert (state.disturbed, state.not_judged) == ("another process (pid 7) was on the device", NO_CPU_TIME)
    for number in range(10):
        records[1 + number]["cpu"] = host()
    assert summarise_state(records, 0.0, 2.0).not_judged is None, "known for one second"
    assert summarise_state(records, 0.1, 2.0).not_judged == NO_CPU_TIME, "for 0.9 s"


def test_shares_of_single_samples_may_be_off_and_their_mean_is_not() -> None:
    records = states(20, cpu=host(others=0.1))
    for number in range(10):
        records[number]["cpu"] = host(others=-0.1)
    assert summarise_state([CPU_HEADER, *records], 0.0, 2.0).cpu_others_share == 0.0
    assert summarise_state([CPU_HEADER, *records], 0.0, 1.0).cpu_others_share == 0.0


def test_on_a_cpu_the_clock_is_the_cores_and_a_quota_is_a_cap() -> None:
    records = states(20, cpu=host(throttled=0.25))
    records[3]["cpu"] = host(mhz=1000.0, mhz_min=800.0, throttled=0.25)
    state = summarise_state([CPU_HEADER, *records], 0.0, 2.0)
    assert (state.clock_mean_mhz, state.clock_min_mhz) == (pytest.approx(2900), 800)
    assert (state.capped_share, state.caps, state.disturbed) == (pytest.approx(0.25), (("cpu quota", pytest.approx(0.25)),), None)


def test_failed_sources_leave_unknown_what_they_give() -> None:
    records = [HEADER, *({"kind": "state", "t": (number + 1) / 10} for number in range(20))]
    state = summarise_state(records, 0.0, 2.0)
    assert (state.samples, state.coverage) == (20, pytest.approx(1.0))
    assert {name for name, value in state.metrics().items() if value is not None} == {"state_coverage"}
    unknown = device(sm_mhz=None, memory_mhz=None, power_w=None, temperature_c=None, capped_by=None, others=None)
    bare = summarise_state([HEADER, *states(20, devices=[unknown])], 0.0, 2.0)
    assert (bare.clock_mean_mhz, bare.capped_share, bare.other_processes, bare.disturbed) == (None, None, None, None)


def test_several_reasons_are_all_given() -> None:
    records = states(20, cpu=host(others=0.8), devices=[device(capped_by=["thermal"], others=[{"pid": 7, "user": None}])])
    assert summarise_state([HEADER, *records], 0.0, 2.0).disturbed == (
        "another process (pid 7) was on the device; thermal slowdown in 100 % of the samples (limit 1 %); "
        "other processes used 80 % of the CPU (limit 50 %)"
    )


def test_the_measured_window() -> None:
    def step(t: float, measured: bool) -> dict[str, Any]:
        return {"t": t, "total_s": 0.5, "measured": measured}

    assert measured_window([step(1.0, False), step(2.0, True), step(2.6, True)]) == (1.5, 2.6)
    assert measured_window([step(1.0, False)]) is None


def test_names_are_those_of_the_metrics() -> None:
    assert tuple(DeviceState(samples=1).metrics()) == NAMES
