"""Section: the state of the devices; what is said of clocks beside a comparison, and of disturbed trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.device_state import NOT_COVERED, POWER, SHORT_WINDOW, DeviceState
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.judge_cells import DISTURBED
from tasks.analysis.trial_row import TrialRow
from tasks.report.sections.device_state import clocks_in_brief, neighbour_cautions, unjudged_cautions
from tests.tasks.cell_support import column, made, report_of, row, settings, workers

CO_TENANT = "other processes used 38 % of the CPU (limit 5 %)"


def sampled(loaders: int, repeat: int, value: float = 100.0, **state: Any) -> TrialRow:
    """A trial whose device was sampled."""
    known = DeviceState(samples=100, coverage=1.0, **state)
    return row(workers(loaders), value * (1 + 0.001 * repeat), repeat=repeat, summary=known.metrics(), state=known)


def capped(repeat: int) -> TrialRow:
    return sampled(0, repeat, clock_mean_mhz=1809.0, clock_min_mhz=1575.0 + repeat, caps=((POWER, 1.0),), capped_share=1.0, power_w=699.5)


def test_clocks_and_what_capped_them() -> None:
    rows = [capped(1), capped(2), sampled(1, 1, 116.0, clock_mean_mhz=1950.4), sampled(1, 2, 116.0, clock_mean_mhz=1949.6)]
    section = report_of(rows).section("device_state")
    assert section.table.header == ["cell", "clock, mean", "lowest", "power", "capped", "by"], "what is unknown has no column"
    assert section.table.rows == [
        ["MP-0", "1,809 MHz", "1,576 MHz", "699.5 W", "100 %", "power"],
        ["MP-1", "1,950 MHz", "–", "–", "–", "–"],
    ]
    assert section.text.endswith("Means over repeats; lowest clock of any.")
    (bullets,) = (block for block in section.blocks if block.kind == "bullets")
    assert bullets.lines == [
        "MP-1 ran at 1,950 MHz; its baseline MP-0 at 1,809 MHz, capped by power all of the time: "
        "a part of their difference may be the clock."
    ]


def test_clocks_less_than_1_percent_apart_are_no_difference() -> None:
    def lines(clock: float) -> int:
        rows = [sampled(0, 1, clock_mean_mhz=1000.0), sampled(0, 2, clock_mean_mhz=1000.0), sampled(1, 1, clock_mean_mhz=clock)]
        return sum(len(block.lines) for block in report_of(rows).section("device_state").blocks if block.kind == "bullets")

    assert (lines(1009.9), lines(1010.1), lines(989.9)) == (0, 1, 1)


def read_with_care(rows: list[TrialRow]) -> list[str]:
    return [line for group in report_of(rows).caution_groups if group.title == "Clocks" for line in group.lines]


def test_clocks_that_differ_are_read_with_care() -> None:
    rows = [capped(1), capped(2), *(sampled(1, n, 116.0, clock_mean_mhz=1950.0, capped_share=0.0) for n in (1, 2))]
    slow = "baseline MP-0 at 1,809 MHz, capped by power all of the time"
    assert read_with_care(rows) == [f"MP-1 ran at 1,950 MHz, never capped; its {slow}: a part of their difference may be the clock."]
    rows += [sampled(loaders, 1, 116.0 + loaders, clock_mean_mhz=1900.0 + loaders) for loaders in (2, 3)]
    fast = "MP-3 ran at 1,903 MHz, MP-2 at 1,902 MHz and MP-1 at 1,950 MHz, never capped"
    assert read_with_care(rows) == [f"{fast}; their {slow}: a part of the differences may be the clock."]
    rows += [sampled(4, 1, 90.0, clock_mean_mhz=1904.0), sampled(5, 1, 90.0, clock_mean_mhz=1810.0)]
    more = "1 more cell differs so from its baseline"
    assert read_with_care(rows) == [f"{fast}; their {slow}; {more}: a part of the differences may be the clock."]
    rows += [sampled(6, 1, 80.0, clock_mean_mhz=1905.0)]
    more = "2 more cells differ so from their baseline"
    assert read_with_care(rows) == [f"{fast}; their {slow}; {more}: a part of the differences may be the clock."]


@pytest.mark.parametrize(
    ("clock", "share", "apart"),
    [
        (1009.9, 1.0, False),
        (1010.1, 1.0, True),
        (989.9, 1.0, True),
        (1000.0, 0.0, False),  # the other is capped, and as fast: no difference comes of that
        (1010.1, 0.0, True),
        (1010.1, None, True),
        (None, 0.0, False),
    ],
)
def test_clocks_a_percent_apart_are_told(clock: float | None, share: float | None, apart: bool) -> None:
    rows = [sampled(0, 1, clock_mean_mhz=1000.0, capped_share=1.0), sampled(1, 1, clock_mean_mhz=clock, capped_share=share)]
    assert bool(read_with_care(rows)) is apart
    assert any(block.kind == "bullets" for block in report_of(rows).section("device_state").blocks) is apart


def test_a_part_of_the_time_is_told_as_such() -> None:
    rows = [sampled(0, 1, clock_mean_mhz=1000.0), sampled(1, 1, clock_mean_mhz=900.0, caps=((POWER, 0.25),), capped_share=0.25)]
    (line,) = next(block for block in report_of(rows).section("device_state").blocks if block.kind == "bullets").lines
    assert line.startswith("MP-1 ran at 900 MHz, capped by power 25.0 % of the time; its baseline")


def test_clocks_of_all_cells_in_a_line() -> None:
    fast = [sampled(1, repeat, 116.0, clock_mean_mhz=1950.0, capped_share=0.0) for repeat in (1, 2)]
    assert (
        clocks_in_brief(made([capped(1), capped(2), *fast]))
        == "1,809 to 1,950 MHz, capped by power 0.0 to 100 % of the time (means of cells)"
    )
    assert clocks_in_brief(made([capped(1), capped(2)])) == "1,809 MHz, capped by power 100 % of the time"
    assert clocks_in_brief(made(fast)) == "1,950 MHz, never capped"
    assert clocks_in_brief(made([sampled(0, 1, clock_mean_mhz=1950.0)])) == "1,950 MHz", "of a device that does not tell what caps it"
    assert clocks_in_brief(made([row(workers(0), 100.0)])) == "", "not sampled"


def test_on_a_page_that_keeps_the_share_and_no_words_the_cap_is_told_without_them() -> None:
    known = [replace(one, state=None) for one in (capped(1), capped(2), sampled(1, 1, clock_mean_mhz=1950.0))]
    section = report_of(known).section("device_state")
    assert column(section.table, "by") == ["not kept", "–"]
    (line,) = next(block for block in section.blocks if block.kind == "bullets").lines
    assert "its baseline MP-0 at 1,809 MHz, capped all of the time (by what was not kept): " in line
    kept = [replace(one, kept_caps=(POWER,)) for one in known[:2]]
    assert column(report_of([*kept, known[2]]).section("device_state").table, "by") == ["power", "–"]


def test_what_is_no_mean_is_told_of_the_columns_that_are_there() -> None:
    def told(**state: Any) -> str:
        return report_of([sampled(0, 1, **state)]).section("device_state").text.rpartition("Means over repeats")[2]

    assert told(cpu_others_share=0.1) == "."
    assert told(temperature_c=61.0) == "; highest temperature of any."
    assert told(temperature_c=61.0, clock_min_mhz=900.0) == "; lowest clock and highest temperature of any."


def test_sweeps_without_samples_have_no_section() -> None:
    assert "device_state" not in report_of([row(workers(0)), row(workers(1))]).section_names


def test_a_disturbed_trial_is_left_out_where_others_are_not() -> None:
    rows = [sampled(0, 1), sampled(0, 2), sampled(0, 3, 40.0, disturbed=CO_TENANT, cpu_others_share=0.38), sampled(1, 1), sampled(1, 2)]
    first, _ = made(rows)
    assert [round(value, 3) for value in first.values] == [100.1, 100.2] and first.disturbed is None
    report = report_of(rows)
    assert report.cautions[0] == "Other work disturbed 1 trial (MP-0 · #3): it is left out of the figures."
    assert column(report.section("device_state").table, "disturbed") == ["1 of 3", "–"]


def test_what_a_disturbed_trial_learnt_counts() -> None:
    rows = [sampled(0, 1), sampled(0, 2, disturbed=CO_TENANT), sampled(1, 1, disturbed=CO_TENANT), sampled(1, 2, disturbed=CO_TENANT)]
    learnt = [replace(one, summary={**one.summary, "eval_loss_after": 1.5}) for one in rows]
    suite = settings(metric="eval_loss_after")
    assert [(len(cell.measured), cell.disturbed) for cell in made(learnt, suite)] == [(2, None), (2, None)]
    assert [line for line in report_of(learnt, suite).cautions if line.startswith("Other work")] == [
        "Other work disturbed 1 trial (MP-0 · #2): its times are left out of the figures, and what it learnt counts.",
        "Other work disturbed every trial of 1 cell (MP-1): what they learnt counts, and their times are not the device's alone.",
    ]
    crashed = row(workers(1), None, repeat=3, outcome=Outcome.CRASHED)
    assert report_of([*learnt, crashed], suite).cautions[:2] == report_of(learnt, suite).cautions[:2], "it learnt nothing"
    third = sampled(0, 3, disturbed=CO_TENANT)
    two = [*learnt[:2], replace(third, summary={**third.summary, "eval_loss_after": 1.5})]
    assert report_of(two, suite).cautions[0] == (
        "Other work disturbed 2 trials (cpu · MP-0 · #2 and cpu · MP-0 · #3): "
        "their times are left out of the figures, and what they learnt counts."
    )
    assert report_of(learnt[:2], suite).cautions[0] == (
        "Other work disturbed 1 trial (cpu · MP-0 · #2): its times are left out of the figures, and what it learnt counts."
    )


def test_nothing_is_claimed_from_a_cell_that_was_always_disturbed() -> None:
    rows = [sampled(0, n) for n in (1, 2, 3)] + [sampled(1, n, 150.0, disturbed=CO_TENANT) for n in (1, 2, 3)]
    _, second = made(rows)
    assert len(second.values) == 3 and second.disturbed == CO_TENANT, "it is shown"
    assert (second.verdict, second.why_undecided) == (Verdict.UNDECIDED, DISTURBED)
    report = report_of(rows)
    assert report.cautions[0] == (
        f"Other work disturbed every trial of 1 cell (MP-1): nothing is claimed from them. cpu · MP-1: {CO_TENANT}."
    )
    undisturbed = [*rows[:3], *(sampled(1, n, 150.0) for n in (1, 2, 3))]
    assert made(undisturbed)[1].verdict is Verdict.FASTER


def test_a_disturbed_baseline_decides_nothing_either() -> None:
    rows = [sampled(0, n, disturbed=CO_TENANT) for n in (1, 2, 3)] + [sampled(1, n, 150.0) for n in (1, 2, 3)]
    _, second = made(rows)
    assert (second.verdict, second.why_undecided, second.disturbed) == (Verdict.UNDECIDED, DISTURBED, None)


def test_work_on_other_gpus_of_the_host_is_told_and_leaves_nothing_out() -> None:
    beside = [sampled(0, n, neighbour_gpus=n) for n in (1, 2)] + [sampled(1, n, 150.0, neighbour_gpus=0) for n in (1, 2)]
    own = "of the host, and on none of the trials' own. They may have shared the host's cores, memory and links."
    told = f"While 2 of 4 trials measured, other processes were on up to 2 other GPUs {own}"
    assert told in report_of(beside).cautions and not any(cell.disturbed for cell in made(beside))
    assert neighbour_cautions(made(beside[:1])) == [f"While all trials measured, other processes were on up to 1 other GPU {own}"]
    partly = [*beside[:2], *beside[2:3], sampled(1, 2, 150.0)]
    assert neighbour_cautions(made(partly)) == [f"{told.replace('2 of 4', '2 of 3')} Of 1 other trial that is not known."]
    only = [*beside[:2], sampled(1, 2, 150.0)]
    assert neighbour_cautions(made(only)) == [f"{told.replace('2 of 4', '2 of 2')} Of 1 other trial that is not known."]
    assert neighbour_cautions(made(beside[2:])) == neighbour_cautions(made([sampled(0, 1)])) == []


def test_trials_of_which_other_work_could_not_be_seen_are_named_by_reason() -> None:
    rows = [sampled(0, 1), sampled(0, 2, not_judged=SHORT_WINDOW), sampled(0, 3, disturbed=CO_TENANT, not_judged=SHORT_WINDOW)]
    rows += [sampled(1, 1, not_judged=SHORT_WINDOW), sampled(1, 2, not_judged=NOT_COVERED), row(workers(1), None, outcome=Outcome.CRASHED)]
    assert column(report_of(rows).section("device_state").table, "disturbed") == ["1 of 3, 1 not judged", "not judged"]
    assert unjudged_cautions(made(rows)) == [
        "2 trials (MP-0 · #2 and MP-1 · #1) were not judged for other work: the window was under 1 s.",
        "1 trial (MP-1 · #2) was not judged for other work: the sampler covered less than 90 % of the window.",
    ]
    assert unjudged_cautions(made([sampled(0, 1), sampled(1, 1)])) == []
    assert unjudged_cautions([]) == [], "nothing was to be recorded"


def test_a_trial_without_samples_is_named_and_a_sweep_without_any_says_so_once() -> None:
    unknown = [row(workers(0)), row(workers(1))]
    assert unjudged_cautions(made(unknown)) == ["The state of the devices was not recorded."]
    crashed = row(workers(1), None, repeat=2, outcome=Outcome.CRASHED)
    assert unjudged_cautions(made([*unknown, crashed])) == ["The state of the devices was not recorded."], "it measured nothing to judge"
    assert unjudged_cautions(made([crashed])) == []
    assert "The state of the devices was not recorded." in report_of(unknown).cautions
    emulated = [replace(one, environment={"emulated": True}) for one in unknown]
    assert "The state of the devices was not recorded." not in report_of(emulated, emulated=True).cautions
    assert unjudged_cautions(made([unknown[0], sampled(1, 1)])) == [
        "1 trial (MP-0 · #1) was not judged for other work: nothing was sampled."
    ]


def test_of_a_published_trial_the_result_says_it() -> None:
    """Its samples are not there; its coverage is."""
    one = row(workers(0), summary={"state_coverage": 0.5})
    assert one.result is not None and one.not_judged is None
    told = replace(one, result=one.result.model_copy(update={"not_judged": NOT_COVERED}))
    assert told.not_judged == NOT_COVERED
    both = one.result.model_copy(update={"not_judged": NOT_COVERED, "disturbed": CO_TENANT})
    assert replace(one, result=both).not_judged is None, "disturbed is more"
