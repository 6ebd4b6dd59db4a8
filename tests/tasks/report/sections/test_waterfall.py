"""Section: where the peak goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.analysis.results import load_sweep
from tasks.analysis.trial_row import LEFT_OUT
from tasks.analysis.waterfall import DROPS, SHAPES
from tasks.report.comparison_table import TextTable
from tasks.report.model import make_report
from tasks.report.section import Bullets
from tasks.report.sections.waterfall import ABOUT, HOW, NAME, WITHIN, products_table, ranks_table, waterfall_tables, waterfalls
from tasks.report.write import write_report
from tests.tasks.analysis.test_waterfall import PROFILE, RANK, TERA
from tests.tasks.cell_support import column, made, report_of, row, workers
from tests.tasks.fake_sweep import Fake, make_sweep

FULL = {"where": "device", "steps": 4, "span_s": 10.0, "idle_s": 1.5, "groups": [], **PROFILE}
CLOCK = {"clock_mean_mhz": 1600.0, "mfu": 0.27}
SECOND = {**RANK, "rank": 1}
ATTAINED = {**FULL, "ranks": [{**RANK, "covered_s": 4.0, "attainable_s": 4 * 500 / 600, "product_flops": 1900 * TERA}]}


def traced(workers_: int = 0, profile: Any = FULL, device: str = "cuda", **summary: Any) -> Any:
    return row(workers(workers_), profile=profile, device=device, summary={**CLOCK, **summary})


def line_of(table: TextTable, name: str) -> list[str]:
    """The values of one row, from left to right."""
    return next(list(values) for told, *values in table.rows if told == name)


def test_of_many_cells_no_table_is_wider_than_four() -> None:
    tables = [block for block in report_of([traced(n) for n in range(9)]).section(NAME).blocks if isinstance(block, TextTable)]
    assert [len(table.header) for table in tables] == [5, 5, 2] and tables[2].header[1] == "MP-8"
    assert len({tuple(line[0] for line in table.rows) for table in tables}) == 1


def test_a_column_goes_from_the_peak_to_what_was_reached() -> None:
    table = report_of([traced()]).section(NAME).table
    assert table.header == ["share of the peak", "cpu · MP-0"] and table.numeric
    assert dict(table.rows) == {
        "peak": "1,000 TFLOP/s",
        "clock": "−20.0 %",
        "matrix products": "−30.0 %",
        "attention": "−6.0 %",
        "other kernels": "−5.0 %",
        "idle: launches": "−4.0 %",
        "idle: allocator": "−2.0 %",
        "idle: gaps": "−1.5 %",
        "exposed communication": "−2.5 %",
        "data wait": "−5.0 %",
        "reached": "24.0 %",
        "MFU, not traced": "27.0 %",
        "rate of matrix products": "500.0 TFLOP/s",
    }


def test_the_rate_that_the_shapes_attain_parts_the_products_drop() -> None:
    """600 TFLOP/s of the 800 that the clock leaves, of which 500 were reached. Of one cell a tenth of the time is not known."""
    some = {**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "covered_s": 3.6}], "not_measured": {"5 s were over": 2}}
    section = report_of([traced(profile=ATTAINED), traced(1, some), traced(2)]).section(NAME)
    assert line_of(section.table, "matrix shapes") == ["−20.0 %", "−20.0 %", "–"]
    assert line_of(section.table, "matrix products") == ["−10.0 %", "−10.0 %", "−30.0 %"]
    assert line_of(section.table, "attainable") == ["600.0 TFLOP/s", "600.0 TFLOP/s", "–"]
    unknown, covered = section.block(Bullets).lines
    assert unknown == f"MP-2: {WITHIN[SHAPES]}."
    assert covered == (
        "MP-1: the attainable rate is of products that took 90.0 % of the matrix products' time; not measured: 2 (5 s were over). "
        "The rest, such as convolutions, Triton kernels and CUDA graphs, counts at the rate that it had."
    )


def test_work_beyond_the_models_flops_is_said() -> None:
    """2,000 TFLOP of a step are the model's and of matrix products."""
    done = [{**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "product_flops": share * 2000 * TERA}]} for share in (1.02, 1.33, 1.03)]
    lines = report_of([traced(place, profile) for place, profile in enumerate(done)]).section(NAME).block(Bullets).lines
    [said] = [line.partition(", such as by recomputing in checkpointed layers.")[0] for line in lines]
    assert said == "MP-1 and MP-2: their matrix products did 1.03 to 1.33 times the model's FLOPs"
    [line] = report_of([traced(place, profile) for place, profile in enumerate(done[:2])]).section(NAME).block(Bullets).lines
    assert line.startswith("MP-1: its matrix products did 1.33 times the model's FLOPs, ")


@pytest.mark.parametrize(
    ("launch_s", "mfus", "told"),
    [
        (0.8, (0.27, 0.2823), []),
        (0.8, (0.27, 0.2824), ["MP-1: traced steps took 1.18 times as long as measured ones by their MFU, so"]),
        (0.8, (0.27, None), []),
        (0.8, (0.48, 0.36), ["Both cells: traced steps took 1.50 to 2.00 times as long as measured ones by their MFU, so"]),
        (5.0, (0.27, 0.48), ["MP-1: traced steps took 2.00 times as long as measured ones by their MFU, so"]),
        (
            5.01,
            (0.27, 0.48),
            ["MP-1: traced steps took 2.00 times as long as measured ones by their MFU, so", "MP-1: waits for launches alone"],
        ),
        (9.0, (0.27, 0.27), []),  # long waits in steps that are as long as measured ones, or nearly
    ],
)
def test_of_traced_steps_that_were_much_slower_it_is_said_by_how_much_and_why_only_where_they_show_it(
    launch_s: float, mfus: tuple[float, float | None], told: list[str]
) -> None:
    """They reached 24 %. A page blamed the profiler of any steps that reached less than 85 % of the MFU, of which a trace says nothing."""
    profile = {**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "launch_s": launch_s}]}
    blocks = report_of([traced(place, profile, mfu=mfu) for place, mfu in enumerate(mfus)]).section(NAME).blocks
    lines = [line for block in blocks if isinstance(block, Bullets) for line in block.lines]
    ends = (" these shares hold for traced steps.", " were longer in a traced step than a whole measured step.")
    assert [line.removesuffix(end) for line in lines for end in ends if line.endswith(end)] == told
    assert not any("profiler" in line for line in lines)


def test_waits_for_launches_are_told_as_shares_of_the_step_too() -> None:
    """T5's page showed launches as 1.6 % of the peak, where the GPU waited for them 95 % of the traced step."""
    waits = [{**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "launch_s": share * 10.0}]} for share in (0.249, 0.25, 0.951)]
    [line] = report_of([traced(place, profile) for place, profile in enumerate(waits)]).section(NAME).block(Bullets).lines
    assert line.startswith("Waits for launches took of the traced step 25.0 % in MP-1 and 95.1 % in MP-2: their drop is ")


def test_what_is_not_covered_is_said_from_half_a_percent_on() -> None:
    covered = [{**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "covered_s": seconds}]} for seconds in (3.98, 3.97)]
    [line] = report_of([traced(place, profile) for place, profile in enumerate(covered)]).section(NAME).block(Bullets).lines
    assert line.startswith("MP-1: the attainable rate is of products that took 99.2 % of the matrix products' time.")


def test_cells_of_which_some_is_not_covered_for_the_same_reason_share_a_line() -> None:
    covered = [{**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "covered_s": seconds}]} for seconds in (3.9, 3.6, 3.9, 4.0)]
    lines = report_of([traced(place, profile) for place, profile in enumerate(covered)]).section(NAME).block(Bullets).lines
    said = "the attainable rate is of products that took {} of the matrix products' time."
    assert [line.partition(" The rest")[0] for line in lines] == [f"Every cell but MP-3: {said.format('90.0 to 97.5 %')}"]
    other = {**covered[0], "not_measured": {"5 s were over": 2}}
    lines = report_of([traced(place, profile) for place, profile in enumerate([*covered[:2], other])]).section(NAME).block(Bullets).lines
    assert [line.partition(":")[0] for line in lines] == ["MP-0 and MP-1", "MP-2"], "another reason is another line"
    counted = [{**covered[0], "not_measured": {"5 s were over": count, "too large": 1}} for count in (235, 27)]
    [line] = report_of([traced(place, profile) for place, profile in enumerate(counted)]).section(NAME).block(Bullets).lines
    assert line.startswith(f"Both cells: {said.format('97.5 %')[:-1]}; not measured: 27 to 235 (5 s were over), 1 (too large). The rest")


@pytest.mark.parametrize(
    ("those", "of", "said"),
    [
        (1, 1, "cpu · MP-0"),
        (2, 2, "Both cells"),
        (6, 6, "All 6 cells"),
        (5, 6, "Every cell but MP-5"),
        (5, 7, "Every cell but MP-5 and MP-6"),
        (4, 6, "MP-0, MP-1, MP-2 and MP-3"),
        (6, 9, "MP-0, MP-1, MP-2, MP-3, MP-4 and MP-5"),
        (2, 3, "MP-0 and MP-1"),
    ],
)
def test_where_few_cells_are_not_meant_these_are_named_and_of_all_none(those: int, of: int, said: str) -> None:
    shares = [0.951 if place < those else 1.0 for place in range(of)]
    profiles = [{**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "covered_s": 4.0 * share}]} for share in shares]
    [line] = report_of([traced(place, profile) for place, profile in enumerate(profiles)]).section(NAME).block(Bullets).lines
    assert line.startswith(f"{said}: the attainable rate is of products that took 95.1 % of ")


def test_drops_with_their_minus_and_gains_with_their_plus_lead_from_100_to_what_was_reached() -> None:
    """As the sentence above the table says."""
    faster = {**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "attainable_s": 4 * 500 / 400}]}
    section = report_of([traced(profile=faster, clock_mean_mhz=2200.0)]).section(NAME)
    shares = {name: told for name, told in section.table.rows if told.endswith(" %")}
    signed = {name: float(told.removesuffix(" %").replace("−", "-")) for name, told in shares.items()}
    assert signed["clock"] == 10.0 and signed["matrix shapes"] == -70.0 and signed["matrix products"] == 10.0, "two gains and a drop"
    assert 100 + sum(signed[name] for name in DROPS if name in signed) == pytest.approx(signed["reached"])
    assert ABOUT.startswith(
        "Shares of the data sheet's peak for the precisions that compute: 100 %, less each drop (−) and with each gain (+)"
    )


def test_the_products_that_took_longest_have_a_row_each() -> None:
    product = {"product": "mm 8192x1024 . 1024x4096 bfloat16 NT", "calls": 24.0, "flops": 1e12, "seconds": 0.04, "attainable_s": 0.03}
    [cell] = made([traced(profile={**ATTAINED, "products": [product, {**product, "attainable_s": None}, *[product] * 9]})])
    table = products_table([cell])
    assert len(table.rows) == 6
    assert [line[1:] for line in table.rows[:2]] == [
        [product["product"], "24", "40.00 ms", "600.0 TFLOP/s", "800.0 TFLOP/s"],
        [product["product"], "24", "40.00 ms", "600.0 TFLOP/s", "–"],
    ]
    assert products_table(made([traced()])).rows == [], "an earlier sweep has none"


def test_a_gain_has_a_plus_and_what_is_not_known_is_said() -> None:
    unsaid = {**FULL, "attention_flops_per_sample": None}
    section = report_of([traced(clock_mean_mhz=2200.0), traced(1, unsaid, clock_mean_mhz=None), traced(2, unsaid)]).section(NAME)
    assert line_of(section.table, "clock") == ["+10.0 %", "–", "−20.0 %"] and line_of(section.table, "attention") == ["−6.0 %", "–", "–"]
    clock, _, attention = section.block(Bullets).lines
    assert clock == "MP-1: the clock is within the next drop, since it was not sampled or the data sheet's is not known."
    assert attention.startswith("MP-1 and MP-2: attention is within the matrix products")


def test_a_disturbed_trace_is_named_and_what_holds_of_all_cells_names_none() -> None:
    disturbed = row(workers(0), profile=FULL, device="cuda", summary=CLOCK)
    assert disturbed.result is not None
    told = replace(disturbed, result=disturbed.result.model_copy(update={"disturbed": "another process"}))
    lines = report_of([told, traced(1)]).section(NAME).block(Bullets).lines
    shapes = f"Both cells: {WITHIN[SHAPES]}."
    assert lines == ["MP-0: other work disturbed the trial that was traced.", shapes]


def test_several_ranks_have_a_row_each() -> None:
    [one, two] = made([traced(), traced(1, {**FULL, "ranks": [RANK, {**SECOND, "step_s": 20.0, "data_wait_s": 11.0}]})])
    table = ranks_table([one, two])
    assert [line[:3] for line in table.rows] == [["MP-1", "rank 0", "10,000 ms"], ["MP-1", "rank 1", "20,000 ms"]], (
        "one rank is in the table above"
    )
    assert dict(zip(table.header[3:], table.rows[1][3:], strict=True)) == {
        "matrix products": "20.0 %",
        "attention": "10.0 %",
        "other kernels": "3.8 %",
        "copies": "1.2 %",
        "idle: launches": "4.0 %",
        "idle: allocator": "2.0 %",
        "idle: gaps": "1.5 %",
        "exposed communication": "2.5 %",
        "data wait": "55.0 %",
        "hidden communication": "4.5 %",
    }


@pytest.mark.parametrize(
    ("ranks", "recorded", "told"),
    [
        ([0, 1, 2, 3], [], []),
        ([0, 2, 3], [{"rank": 1, "why": "MemoryError"}], ["the trace of rank 1 is missing (MemoryError)"]),
        ([0, 2], [], ["the traces of ranks 1 and 3 are missing (why was not recorded)"]),  # of before it was
        (
            [0],
            [{"rank": 1, "why": "a"}, {"rank": 2, "why": None}, {"rank": 3, "why": "a"}],
            ["the traces of ranks 1 and 3 are missing (a)", "the trace of rank 2 is missing (why was not recorded)"],
        ),
    ],
)
def test_ranks_without_a_trace_are_named(ranks: list[int], recorded: list[Any], told: list[str]) -> None:
    """Of four devices. The table of ranks has rows of the others alone."""
    profile = {**ATTAINED, "ranks": [{**ATTAINED["ranks"][0], "rank": rank} for rank in ranks], "missing_ranks": recorded}
    four = row(workers(1, devices=4), profile=profile, device="cuda", summary=CLOCK)
    blocks = report_of([traced(profile=ATTAINED), four]).section(NAME).blocks
    lines = [line for block in blocks if isinstance(block, Bullets) for line in block.lines]
    means = ", so all means are of the other ranks."
    assert [line.partition(": ")[2].removesuffix(means) for line in lines if line.endswith(means)] == told


def test_a_trace_that_cannot_be_is_named_and_the_other_cells_have_theirs() -> None:
    impossible = {**FULL, "ranks": [{**RANK, "matrix_s": 0.5}]}
    found, problems = waterfalls(made([traced(), traced(1, impossible)]))
    assert [table.header[1:] for table in waterfall_tables(found)] == [["MP-0"]]
    [problem] = problems
    assert problem.startswith("MP-1: its matrix products would have run at 4000 TFLOP/s of 800: ")
    report = report_of([traced(1, impossible)])
    assert report.section(NAME).block(Bullets).lines == [problem.replace("MP-1", "cpu · MP-1")]


def test_a_trace_that_is_not_the_mix_of_all_kinds_is_left_out_with_the_reason() -> None:
    """In a sentence where other cells have figures, and where none has."""
    unbalanced = {name: value for name, value in FULL.items() if name != "ranks"} | {LEFT_OUT: "not shown, since why"}
    section = report_of([traced(), traced(1, unbalanced)]).section(NAME)
    assert section.table.header == ["share of the peak", "MP-0"]
    assert section.block(Bullets).lines[0] == "MP-1: not shown, since why."
    assert report_of([traced(1, unbalanced)]).section(NAME).blocks == [Bullets(["cpu · MP-1: not shown, since why."])]


def test_gpus_without_traced_steps_are_told_how_to_get_it_and_cpus_are_not() -> None:
    section = report_of([traced(profile=None)]).section(NAME)
    assert section.blocks == [Bullets([HOW])] and section.only_how and "--set profile_steps=4" in HOW
    for untraced in (
        traced(profile=None, device="cpu"),
        traced(profile=None, mfu=None),
        traced(profile={**FULL, "where": "host", "ranks": None}, device="cpu"),
    ):
        assert NAME not in report_of([untraced]).section_names


def test_what_the_window_says_of_flops_and_peak_reaches_both_reports(tmp_path: Path) -> None:
    window = {
        "flops_per_sample": 300 * TERA,
        "attention_flops_per_sample": 50 * TERA,
        "peak_flops": 1000 * TERA,
        "peak_clock_mhz": 2000.0,
        "profile": {"where": "device", "steps": 4, "span_s": 10.0, "idle_s": 1.5, "groups": [], "ranks": [RANK, SECOND]},
    }
    fakes = [Fake({"pool": "cpu", "model": "a", "dataloader_workers": n}, window=window) for n in (0, 1)]
    folder = make_sweep(tmp_path, fakes)
    table = make_report(load_sweep(folder)).section(NAME).table
    assert line_of(table, "reached") == ["24.0 %", "24.0 %"] and "clock" not in column(table, "share of the peak"), "no state was sampled"
    paths = write_report(folder)
    assert "## Where the peak goes" in paths.markdown.read_text() and "figures/waterfall.svg" in paths.markdown.read_text()
    assert "Where the peak goes" in paths.html.read_text() and (folder / "figures" / "waterfall.svg").exists()
