"""The comparison table: what stands in each place, and where."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.stats.estimate import LEVEL, Estimate, estimate_from_mean, exponential
from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import OF_MANY, TOO_WIDE
from tasks.analysis.trial_row import TrialRow
from tasks.report.comparison_table import ComparisonTable, TableCell, table_cell
from tasks.report.html import render_html
from tasks.report.markdown import comparison_markdown, md
from tasks.report.marks import Mark, rounds_of_ratio
from tests.tasks.cell_support import EVEN, disturbed, made, places_of, repeats, report_of, row, settings, table_in, table_of, workers
from tests.tasks.fake_sweep import Fake, make_sweep


def test_a_place_holds_the_rate_its_interval_and_its_speedup() -> None:
    places = places_of([*repeats(workers(0), 104.0), *repeats(workers(1), 130.0, (-0.02, 0.0, 0.02)), row(workers(2), None)])
    base, faster = places["cpu · MP-0"], places["cpu · MP-1"]
    assert (base.value, base.plus_minus, base.speedup, base.change) == ("104.0 samples/s", "±2.5 %", "baseline", "")
    assert (faster.value, faster.plus_minus, faster.speedup) == ("130.0 samples/s", "±5.0 %", "x1.25 (1.22–1.28)")
    assert (base.shown().plain, faster.shown().plain) == ("104.0 samples/s ±2.5 %", "130.0 samples/s ±5.0 %  x1.25 (1.22–1.28)")
    assert (faster.marks, faster.words) == ([], "")
    assert [place.notes for place in (base, faster)] == [[], []] and not faster.struck
    missing = places["cpu · MP-2"]
    assert (missing.outcome, missing.value, missing.shown().plain) == ("ok", "", "ok")


def with_mfu(value: float | None, axes: dict[str, Any]) -> list[TrialRow]:
    return repeats(axes, 100.0, metric="tokens_per_s", summary={} if value is None else {"mfu": value})


def test_mfu_stands_beside_tokens_per_second_where_it_is_known() -> None:
    """No suite has to ask: so reports of sweeps of before show it too."""
    table = table_of([*with_mfu(0.289, workers(0)), *with_mfu(0.4512, workers(1))], settings(metric="tokens_per_s"))
    ((_, (base, other)),) = table.rows
    assert (base.further, other.further) == (["MFU 28.9 %"], ["MFU 45.1 %"])
    assert base.shown().plain == "100.0 tokens/s ±2.5 %, MFU 28.9 %"
    assert other.shown().plain.startswith("100.0 tokens/s ±2.5 %, MFU 45.1 %  x1.00")
    assert ("MFU 45.1 %", "not bold") in [(text.removeprefix(", "), style) for text, style in other.shown().parts], "not as the value is"
    meaning = "MFU is model FLOP utilisation, against the peak of the precisions that compute (mean of repeats); x is the speed-up"
    assert table.reading.startswith(f"± is half the 95 % interval; {meaning}")
    [line] = [line for line in comparison_markdown(table).splitlines() if "baseline" in line]
    assert line.startswith("| cpu | **100.0 tokens/s** ±2.5 %, MFU 28.9 %, baseline | **100.0 tokens/s** ±2.5 %, MFU 45.1 %, x1.00")
    for unknown in (
        table_of([*with_mfu(None, workers(0)), *with_mfu(None, workers(1))], settings(metric="tokens_per_s")),
        table_of([*with_mfu(0.3, workers(0)), *with_mfu(0.4, workers(1))], settings(metric="tokens_per_s", beside=[])),
    ):
        assert "MFU" not in unknown.reading + comparison_markdown(unknown)
        assert unknown.rows[0][1][0].shown().plain == "100.0 tokens/s ±2.5 %"


def test_a_suite_names_what_else_stands_in_a_cell() -> None:
    known = {"mfu": 0.3, "peak_memory_bytes": 3 * 2**30, "tflops_per_device": 297.0, "latency_p50_s": 0.0123}
    rows = [*repeats(workers(0), 100.0, summary=known), *repeats(workers(1), 120.0)]
    plain = table_of(rows)
    assert plain.rows[0][1][0].further == [] and "MFU" not in plain.reading, "beside samples/s only where it is asked for"
    asked = table_of(rows, settings(beside=["peak_memory_bytes", "mfu", "tflops_per_device", "latency_p50_s"]))
    ((_, (base, other)),) = asked.rows
    assert base.further == ["peak memory 3.00 GiB", "MFU 30.0 %", "TFLOP/s per device 297.0", "latency p50 12.3 ms"] and other.further == []
    assert "; peak memory is the mean of repeats; MFU is model FLOP" in asked.reading


def test_the_page_has_further_metrics_on_a_line_below_the_value() -> None:
    report = report_of([*with_mfu(0.289, workers(0)), *with_mfu(None, workers(1))], settings(metric="tokens_per_s"))
    html = render_html(report)
    assert '<span class="dim">±2.5 %</span><br><span class="nb">MFU 28.9 %</span><br>' in html
    assert html.count("MFU 28.9 %</span>") == 1


def test_a_speedup_says_where_it_is_the_same_or_undecided() -> None:
    places = places_of(
        [
            *repeats(workers(0), 100.0),
            *repeats(workers(1), 100.5),
            *repeats(workers(2, "gpu"), 110.0, (-0.1, 0.1, 0.0)),
            *repeats(workers(0, "gpu"), 100.0),
            row(workers(3), 104.0),
        ]
    )
    same, wide, once = (places[name] for name in ("cpu · MP-1", "gpu · MP-2", "cpu · MP-3"))
    assert (same.speedup, same.words, same.shown().plain[-1]) == ("x1.005 (1.005–1.005)", "same", "=")
    assert (wide.speedup[:7], wide.words, wide.shown().plain[-1]) == ("x1.10 (", "undecided", "?")
    assert (once.speedup, once.words, once.plus_minus) == ("x1.05 (interval unknown)", "undecided", ""), "against the same round alone"
    assert wide.notes == ["undecided: too wide an interval"] and once.notes == ["undecided: one trial"] and same.notes == []


def test_a_ratio_that_is_not_of_the_two_values_says_of_which_rounds_it_is() -> None:
    """Of side A one trial was left undisturbed, of side B none: 0.64 is that of the third round, and the values' own ratio is 0.54."""
    base = [row(workers(0), value, repeat=number) for number, value in enumerate((20_000.0, 24_000.0, 32_560.0), 1)]
    mine = [row(workers(1), value, repeat=number) for number, value in enumerate((15_000.0, 17_500.0, 20_838.0), 1)]
    table = table_of([*map(disturbed, base[:2]), base[2], *map(disturbed, mine)])
    said = "of round 3, measured on both sides; each value is of all rounds of its own"
    ((_, (_, place)),) = table.rows
    assert place.speedup.startswith("x0.64 ") and f"its comparison is {said}" in place.notes
    assert f"MP-1 {place.speedup}: {said}" in table.signs and rounds_of_ratio(place.cell) == "round 3"
    assert said in comparison_markdown(table).replace("\\", "")
    alike = table_of([*base, *mine])
    assert "round" not in alike.signs and rounds_of_ratio(alike.rows[0][1][1].cell) == "", "all rounds on both sides"


def test_numbers_of_notes_rise_within_a_place() -> None:
    table = table_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])
    ((names, (base, fast)),) = table.rows
    noted = replace(table, rows=[(names, [replace(base, notes=["one", "two"]), replace(fast, notes=["two", "three", "one"])])])
    assert next(line for line in comparison_markdown(noted).splitlines() if "baseline" in line).endswith("(1) (2) (3) |")


def test_markdown_has_no_column_of_an_axis_in_which_all_rows_are_alike() -> None:
    def header(*models: str) -> str:
        rows = [one for name in models for one in repeats(workers(0, model=name, precision="fp32"), 100.0)]
        return comparison_markdown(table_of(rows, settings(rows=("pool", "model", "precision")))).splitlines()[0]

    assert header("a", "b") == "| model | MP-0 |" and header("a") == "| pool | MP-0 |"


def test_a_page_has_a_long_note_of_several_cells_once_below_its_table() -> None:
    """In every cell it would hide the numbers."""
    report = report_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0), row(workers(2), None, outcome=Outcome.CRASHED)])
    section = report.section("comparison")
    table = section.block(ComparisonTable)
    ((names, (base, fast, lost)),) = table.rows
    long, short, own = "l" * 41, "s" * 40, "o" * 41
    places = [replace(base, notes=[long, short]), replace(fast, notes=[own, long, short]), replace(lost, reason=long, notes=[own])]
    noted = replace(table, rows=[(names, places)])
    assert noted.footnotes == [long], "short ones stand where they are, and a cell without a value has its reason alone"
    page = render_html(replace(report, sections=[replace(section, blocks=[noted])]))
    assert page.count(long) == 1 and f'<ol class="dim"><li>{long}</li></ol>' in page and page.count('<span class="dim">(1)</span>') == 3
    assert page.count(f'<span class="note">{short}</span>') == 2 and page.count(f'<span class="note">{own}</span>') == 1
    assert "<ol" not in render_html(report)
    first, second = "1" * 41, "2" * 41
    lone, full = [TableCell(), replace(fast, notes=[second, first])], [replace(base, notes=[first]), replace(fast, notes=[second, first])]
    noted = replace(table, columns=table.columns[:2], rows=[(names, lone), (names, full)])
    assert noted.footnotes == [first, second], "as the page's rows come: those with the most cells first"
    page = render_html(replace(report, sections=[replace(section, blocks=[noted])]))
    assert page.count('<span class="dim">(1)</span> <span class="dim">(2)</span>') == 2, "rising, as the numbers below"


def test_a_cell_that_none_is_compared_with_is_not_called_a_baseline() -> None:
    places = places_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])
    alone = places_of(repeats(workers(0), 100.0))
    assert [place.speedup for place in alone.values()] == [""]
    assert places["cpu · MP-0"].speedup == "baseline"
    waiting = places_of([*repeats(workers(0), 100.0), row(workers(1), None)])
    assert waiting["cpu · MP-0"].speedup == "baseline", "what is planned and has no value yet will be compared with it"


def test_the_marks_are_explained_under_the_table() -> None:
    table = table_of([*repeats(workers(0), 100.0), *repeats(workers(1), 100.5), row(workers(2), 104.0)])
    assert table.marks == [Mark.SAME, Mark.UNDECIDED]
    assert (
        table.legend
        == f"same: {Mark.SAME.meaning}; undecided: not shown to differ from its baseline at the level that a verdict needs (one trial)"
    )
    assert (
        table.signs
        == f"= same: {Mark.SAME.meaning}; ? undecided: not shown to differ from its baseline at the level that a verdict needs (one trial)"
    )
    assert comparison_markdown(table).endswith(f"\n\n{md(table.legend)}.")
    plain = table_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])
    assert " baseline | **150.0 samples/s** " in comparison_markdown(plain) and comparison_markdown(plain).endswith(") faster |"), (
        "what is decided and claimed has no mark, and its verdict in words"
    )
    assert (plain.legend, plain.signs) == ("", "")


def test_undecided_beside_no_change_says_what_a_verdict_takes() -> None:
    of_many, wide, small = made([one for count in range(3) for one in repeats(workers(count), 100.0)])
    of_many.verdict, of_many.why_undecided = Verdict.UNDECIDED, OF_MANY
    of_many.speedup = ratio(1.03, 0.005)
    place = table_cell(of_many)
    assert place.marks == [Mark.OF_MANY] and place.words == "undecided, one of many"
    assert place.shown().plain.endswith(" ?*") and place.notes == []
    assert Mark.OF_MANY.meaning.endswith("(false discovery rate: 2.5 %)")
    wide.verdict, wide.why_undecided, wide.speedup = Verdict.UNDECIDED, TOO_WIDE, ratio(1.05, 0.02)
    assert wide.speedup.low > 1.0 and table_cell(wide).marks == [Mark.UNDECIDED]
    assert table_cell(wide, shared_why=TOO_WIDE).notes == [
        "undecided though its interval leaves out 1: a verdict needs a chance of error below 0.5 %, and its interval allows 5.0 %"
    ]
    small.verdict, small.why_undecided, small.speedup = Verdict.UNDECIDED, TOO_WIDE, ratio(1.015, 0.004)
    assert table_cell(small).notes == ["undecided though its interval leaves out 1: it may be less than the smallest effect that counts"]
    small.speedup = ratio(1.015, 0.05)
    assert table_cell(small).notes == ["undecided: too wide an interval"] and table_cell(small, shared_why=TOO_WIDE).notes == []


def ratio(value: float, se: float) -> Estimate:
    return exponential(estimate_from_mean(math.log(value), se, 1000, 1, LEVEL))


def test_a_cell_of_other_work_is_not_compared_and_says_why() -> None:
    rows = [one for width in (64, 128) for one in repeats(workers(1, width=width), 100.0)] + repeats(workers(0, width=64), 90.0)
    places = places_of(rows, {**settings(baseline={"width": 64, "dataloader_workers": 0}), "same_work": ["width"]})
    other = places["cpu · MP-1 · width 128"]
    assert (other.speedup, other.notes[0]) == ("", "not compared with the baseline, which does other work: width 128, there 64")
    assert places["cpu · MP-1 · width 64"].speedup == "x1.111 (1.111–1.111)"


def test_failed_repeats_and_what_did_not_settle_are_noted() -> None:
    rows = [
        row(workers(0), repeat=1),
        row(workers(0), None, repeat=2, outcome=Outcome.HANG),
        row(workers(0), None, repeat=3, outcome=Outcome.CRASHED),
        row(workers(0), None, repeat=4, outcome=Outcome.HANG),
        row(workers(1), repeat=1),
        row(workers(1), repeat=2, summary={"settled": False}),
        row(workers(2), repeat=1),
        row(workers(2), None, repeat=2, outcome=Outcome.CRASHED, summary={"settled": False}),
        row(workers(3), repeat=1, summary={"settled": None, "measured_steps": 1}),
        row(workers(4), repeat=1, summary={"settled": None, "measured_steps": 3}),
        row(workers(4), repeat=2, summary={"settled": None, "measured_steps": 6}),
        row(workers(4), repeat=3, summary={"settled": False, "measured_steps": 8}),
    ]
    places = places_of(rows)
    assert places["cpu · MP-0"].notes == ["3 of 4 repeats: crashed, hang"]
    assert places["cpu · MP-1"].notes == ["did not settle"]
    assert places["cpu · MP-2"].notes == ["1 of 2 repeats: crashed"], "what failed need not settle"
    why = "clip.py:159 in loss: RuntimeError: no library"
    told = [
        row(workers(0), repeat=1),
        row(workers(0), None, repeat=2, outcome=Outcome.CRASHED),
        row(workers(0), None, repeat=3, outcome=Outcome.CRASHED, reason=why),
        row(workers(0), None, repeat=4, outcome=Outcome.CRASHED, reason="another"),
        row(workers(0), None, repeat=5, outcome=Outcome.HANG, reason="silent for 600 s"),
    ]
    assert places_of(told)["cpu · MP-0"].notes == [f"4 of 5 repeats: crashed ({why}), hang (silent for 600 s)"], "in a trial's own words"
    few = "too few steps to tell whether step times settled"
    assert places["cpu · MP-3"].notes[0] == f"{few} (1 step)"
    assert places["cpu · MP-4"].notes == ["did not settle", f"{few} (3 to 6 steps)"]


def test_confounders_and_emulation_are_noted() -> None:
    facts = {"environment": {"torch": "2.13", "compilation": "cached"}}
    places = places_of([row(workers(0), environment={"torch": "2.12", "compilation": "cold"}), row(workers(1), **facts)])
    assert places["cpu · MP-0"].notes == []
    assert places["cpu · MP-1"].notes == ["also differs from its baseline: torch, compilation (cold or from the cache)"]
    [emulated] = made([row(workers(0), emulated=True)], emulated=True)
    assert table_cell(emulated).notes == ["emulated, not a measurement"]


def test_an_outcome_stands_in_the_words_of_people_with_its_reason() -> None:
    places = places_of(
        [
            row(workers(0), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB"),
            row(workers(1), None, outcome=None),
            row(workers(2), None, problem="its journal is damaged"),
        ]
    )
    found = [(place.outcome, place.reason, place.value) for place in places.values()]
    assert found == [("does not fit", "80 GiB", ""), ("to do", "", ""), ("unreadable", "its journal is damaged", "")]
    assert table_cell(None) == TableCell()
    assert TableCell().shown().plain == ""


def judged(status: ParityStatus, rate: float = 150.0) -> Cell:
    """A bf16 cell at `rate` beside fp32 at 100 samples/s, of which loss parity shows this."""
    rows = [*repeats(workers(0, precision="fp32"), 100.0), *repeats(workers(0, precision="bf16"), rate)]
    [_, cell] = made(rows, settings(rows=("precision",), baseline={"precision": "fp32", "dataloader_workers": 0}))
    cell.parity, cell.parity_note = Parity(status), f"{status}: made up"
    return cell


def test_a_speedup_that_may_not_be_claimed_is_marked() -> None:
    marks = {status: [*table_cell(judged(status)).marks] for status in ParityStatus}
    assert marks == {ParityStatus.PROVEN: [], ParityStatus.STRUCK: [Mark.STRUCK], ParityStatus.UNPROVEN: [Mark.UNPROVEN]}
    struck, unproven = table_cell(judged(ParityStatus.STRUCK)), table_cell(judged(ParityStatus.UNPROVEN, 100.0))
    assert struck.shown().plain == "150.0 samples/s ±2.5 %  x1.500 (1.500–1.500) ✗" and struck.words == "struck"
    assert struck.notes == ["loss parity struck: made up"]
    assert unproven.shown().plain.endswith(" = †") and unproven.words == "same, unproven"


@pytest.mark.parametrize(("status", "style"), [(ParityStatus.PROVEN, "not bold green"), (ParityStatus.UNPROVEN, "not bold dim")])
def test_the_terminal_has_no_colour_for_what_is_not_claimed(status: ParityStatus, style: str) -> None:
    assert table_cell(judged(status)).shown().rich().spans[0].style == style
    assert table_cell(judged(ParityStatus.STRUCK)).shown().rich().spans[0].style == "strike not bold"


def test_a_note_that_all_cells_share_is_not_repeated() -> None:
    cell = judged(ParityStatus.UNPROVEN)
    assert table_cell(cell).notes == ["loss parity unproven: made up"]
    assert table_cell(cell, shared_note="unproven: made up").notes == [], "the report says it once"
    [once, _] = table_of([row(workers(0)), row(workers(1)), row(workers(2))]).rows[0][1][1:]
    assert once.notes == [] and once.words == "undecided", "all for the same reason: the legend says it"


def test_columns_stand_by_size_then_in_the_plans_order_and_rows_in_the_plans() -> None:
    rows = [
        row({"pool": pool, "batch_size": size})
        for pool, size in (("b", "max"), ("b", 16), ("a", 8), ("a", None), ("a", 16), ("b", True), ("b", 128))
    ]
    table = table_of(rows, settings(columns="batch_size", baseline={}))
    assert table.columns == ["batch_size 8", "batch_size 16", "batch_size 128", "batch_size max", "batch_size none", "batch_size"]
    assert table.row_axes == ["pool"] and table.header == ["pool", *table.columns]
    assert [(list(names), [place.cell is not None for place in places]) for names, places in table.rows] == [
        (["b"], [False, True, True, True, False, True]),
        (["a"], [True, True, False, False, True, False]),
    ]


def test_the_largest_batch_is_told_with_its_cell() -> None:
    def notes(*sizes: int | None, asked: int | str = "max") -> list[str]:
        rows = [row({"pool": "cpu", "batch_size": asked}, repeat=n, summary={"batch_size": size}) for n, size in enumerate(sizes, 1)]
        [cell] = made(rows)
        return table_cell(cell).notes

    assert notes(199, 199) == ["batch size max is 199 for each device"]
    assert notes(203, 199, 201) == ["batch size max is 199 to 203 for each device"]
    assert notes(65_535, 65_535) == ["batch size max is 65535 for each device"]
    assert notes(65_536) == ["batch size max is 65536 for each device, the most that the search tries: a larger one may fit"]
    assert notes(None) == notes(8, asked=8) == []


def test_the_rows_are_named_by_their_axes() -> None:
    rows = [row({"pool": "cpu", "fused_layers": fused, "clip": clip}) for fused in (True, False) for clip in (None, 0.5)]
    table = table_of(rows, settings(rows=("pool", "fused_layers"), columns="clip", baseline={}))
    assert table.header == ["pool", "fused layers", "clip 0.5", "clip none"]
    assert [names for names, _ in table.rows] == [["cpu", "true"], ["cpu", "false"]]


def test_a_row_is_not_named_by_what_has_no_effect_in_any_of_its_cells() -> None:
    def table(columns: str, rows: tuple[str, ...]) -> ComparisonTable:
        modes = [("none", "default"), ("model", "default"), ("model", "reduce-overhead")]
        made_of = [row({"pool": "cpu", "compile": how, "compile_mode": mode}) for how, mode in modes]
        return table_of(made_of, settings(rows=rows, columns=columns, baseline={}))

    beside = table("pool", ("compile", "compile_mode"))
    assert [names for names, _ in beside.rows] == [["none", "–"], ["model", "default"], ["model", "reduce-overhead"]]
    names = ["compile none", "compile model · compile_mode default", "compile model · compile_mode reduce-overhead"]
    assert beside.row_labels == names
    above = table("compile", ("compile_mode",))
    assert [names for names, _ in above.rows] == [["default"], ["reduce-overhead"]], "it has an effect in one of the row's cells"
    assert above.row_labels == ["compile_mode default", "compile_mode reduce-overhead"]


def test_without_a_column_axis_the_metric_is_the_column() -> None:
    table = table_of([row({"pool": pool}) for pool in "ab"])
    assert (table.header, [names for names, _ in table.rows]) == (["pool", "throughput"], [["a"], ["b"]])
    empty = table_of([])
    assert (empty.title, empty.header, list(empty.rows)) == ("", [], [])


@pytest.mark.parametrize(
    ("metric", "title", "ratio"),
    [
        ("throughput", "Throughput, samples/s", "x is the speed-up over"),
        ("step_time_median_s", "Step time median", "x is how many times lower it is than"),
        ("eval_accuracy_after", "Eval accuracy after", "the signed number is the difference from"),
    ],
)
def test_title_and_what_a_ratio_means(metric: str, title: str, ratio: str) -> None:
    rows = [row(workers(0), 0.5, metric=metric)]
    table = table_of(rows, settings(metric=metric))
    assert (table.title, table.ratio) == (title, ratio)
    assert table_of(rows, settings(metric=metric, title="Of our own")).title == "Of our own"
    assert table_of(rows, settings(metric=metric, title=None)).title == title


def test_the_terminals_table_reads_no_markup_and_has_colour_only_for_what_is_decided() -> None:
    rows = [
        *repeats(workers(0, "[red]x", precision="fp32"), 100.0),
        row(workers(0, "[red]x", precision="tf32"), None, outcome=None),
        row(workers(0, "[red]x", precision="fp16"), None, outcome=Outcome.CRASHED),
    ]
    suite = settings(rows=("pool", "precision"), baseline={"precision": "fp32"})
    table = table_of(rows, suite).shown().rich()
    pools, precisions, values = (list(column.cells) for column in table.columns)
    assert [str(cell) for cell in pools] == ["[red]x"] * 3 and [str(cell) for cell in precisions] == ["fp32", "tf32", "fp16"]
    assert [str(cell) for cell in values] == ["100.0 samples/s ±2.5 %", "to do", "crashed"]
    assert [cell.style for cell in values] == ["bold", "dim", "yellow"]
    assert [column.justify for column in table.columns] == ["left", "left", "right"]
    assert [column.no_wrap for column in table.columns] == [True, True, False]
    for rate, colour in ((150.0, "green"), (50.0, "red"), (100.0, "dim")):
        decided = table_of([*repeats(workers(0), 100.0), *repeats(workers(1), rate)]).shown().rich()
        assert next(iter(decided.columns[2].cells)).spans[0].style == f"not bold {colour}"
    once = table_of([row(workers(0), 100.0), row(workers(1), 150.0)]).shown().rich()
    assert next(iter(once.columns[2].cells)).spans[0].style == "not bold dim", "colour only for what is decided"


def test_the_interval_is_of_the_pools_repeats() -> None:
    [place] = places_of(repeats(workers(0), 100.0, EVEN)).values()
    half = 4.302653 * 0.01 / math.sqrt(3)
    assert place.plus_minus == f"±{100 * math.sinh(half):.1f} %" == "±2.5 %"


def test_a_sweeps_table_is_of_what_measured_or_of_what_was_emulated(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, [Fake(workers(0), steps=12), Fake(workers(1), steps=12, emulated=True)])
    assert table_in(folder).columns == ["MP-0"] and table_in(folder, emulated=True).columns == ["MP-1"]
