"""The head of a report from rows with made-up numbers: title, winner or why there is none; and how its sections are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.trial import Outcome
from tasks.report.comparison_table import ComparisonTable
from tasks.report.html import render_html
from tasks.report.markdown import render_markdown
from tasks.report.section import Bullets
from tests.tasks.cell_support import repeats, report_of, row, settings, workers


def test_title_and_watermark() -> None:
    rows = [row(workers(0)), row(workers(1), outcome=None, value=None)]
    report = report_of(rows, profile="smoke")
    assert (report.title, report.description, report.sweep_id, report.watermark) == ("made_up · smoke", "Made-up numbers.", "made-up", None)
    request = {"suite": "made_up", "set": {"batch_size": 128}, "only": {"dataloader_workers": [0, 1]}}
    given = report_of(rows, request=request).description
    assert given == "Made-up numbers; here with batch_size 128 and dataloader_workers 0 and 1.", "of which the suite may say otherwise"
    assert report_of(rows, {**settings(), "description": ""}, request=request).description == ""
    folded = report_of(rows, {**settings(), "description": "Made-up\n  numbers.\n"}, request=request).description
    assert folded == given, "as YAML may have it"
    assert report_of(rows[:1], git={"commit": "0123456789abcdef", "dirty": False}, command="").title == "made_up · smoke"
    assert report_of([row(workers(0), emulated=True)], emulated=True).watermark == "emulated: not a measurement"


def test_why_there_is_no_answer() -> None:
    failed, waiting, fake = row(workers(0), None, outcome=Outcome.HANG), row(workers(1), None, outcome=None), row(workers(2), emulated=True)
    assert report_of([]).no_answer == "The sweep has no trials."
    assert report_of([row(workers(0))], emulated=True).no_answer == "No trial of this sweep is emulated."
    assert report_of([replace(fake, summary={})], emulated=True).no_answer == "No emulated trial has ended ok."
    assert report_of([fake]).no_answer == "Every trial is emulated: nothing here is a measurement, so nothing is compared."
    assert report_of([waiting]).no_answer == "No trial has ended yet."
    assert report_of([waiting, failed]).no_answer == "No cell has a value: 1 hang, 1 to do."
    full = [row(workers(count), None, outcome=Outcome.DOES_NOT_FIT) for count in (0, 1)]
    assert report_of(full[:1]).no_answer == "No cell has a value: 1 does not fit."
    assert report_of(full).no_answer == "No cell has a value: 2 do not fit."
    done = report_of([row(workers(0)), failed])
    assert done.no_answer == "" and done.answer is not None and done.headline == done.answer.headline
    assert done.winners == [] and done.next_step is None


def test_several_kinds_of_work_have_an_answer_each() -> None:
    rates = {("a", 0): 100.0, ("a", 1): 150.0, ("b", 0): 10.0}
    rows = [one for (model, count), rate in rates.items() for one in repeats(workers(count, model=model), rate)]
    report = report_of(rows, {**settings(rows=("model",)), "same_work": ["model"]})
    assert report.answer is None and [answer.work for answer in report.answers] == ["a", "b"]
    assert [cell.name for cell in report.winners] == ["cpu · MP-1 · a"] and report.loading == []
    assert report.no_answer == "" and report.headline == "a: MP-1 is fastest"


def test_a_report_is_headed_by_its_suites_title_with_suite_and_profile_beside_it() -> None:
    rows = [row(workers(0)), row(workers(1))]
    titled, plain = report_of(rows, {**settings(), "title": "Made-up training"}), report_of(rows)
    assert (titled.heading, titled.title, plain.heading) == ("Made-up training", "made_up · smoke", "")
    assert render_markdown(titled).startswith("# Made-up training (made\\_up · smoke)\n\n")
    assert render_markdown(plain).startswith("# made\\_up · smoke\n\n")
    assert '<h1>Made-up training <span class="of">made_up · smoke</span></h1>' in render_html(titled)
    assert "<h1>made_up · smoke</h1>" in render_html(plain)


def test_cells_stand_in_the_tables_order() -> None:
    rows = [row(workers(count, pool)) for pool, count in (("b", 1), ("a", 2), ("b", 0), ("a", 0))]
    assert [cell.name for cell in report_of(rows).cells] == ["b · MP-0", "b · MP-1", "a · MP-0", "a · MP-2"]


def test_a_section_is_found_by_its_name() -> None:
    report = report_of([row(workers(0))])
    assert report.section_names == ["comparison", "aa", "step_decomposition", "parameters", "trials", "sweep_facts"]
    assert report.section("comparison").block(ComparisonTable).columns == ["MP-0"]
    with pytest.raises(KeyError, match="no section scaling: there is comparison, "):
        report.section("scaling")
    with pytest.raises(KeyError, match="section comparison has no TextTable"):
        assert report.section("comparison").table


def test_every_section_says_something_or_is_left_out() -> None:
    rows = [*repeats(workers(0), 100.0, environment={"torch": "1"}), *repeats(workers(1), 100.0), row(workers(2), None, outcome=None)]
    for report in (report_of([]), report_of(rows)):
        for section in report.sections:
            assert section.blocks and section.name and section.title


def test_failed_repeats_are_pointed_at_where_every_cell_has_a_value() -> None:
    failed = row(workers(0), None, repeat=2, outcome=Outcome.CRASHED)
    assert report_of([row(workers(0)), failed]).repeats_failed
    assert not report_of([row(workers(0)), failed, row(workers(1), None, outcome=None)]).repeats_failed, "something is missing"
    assert not report_of([row(workers(0))]).repeats_failed


def test_a_page_has_a_card_of_what_did_not_run_only_where_something_did_not() -> None:
    failed = row(workers(0), None, repeat=2, outcome=Outcome.CRASHED)
    ran, lacking = "Every cell has a result.", "What did not run, and why"
    whole, short = (render_html(report_of([row(workers(0)), failed, *more])) for more in ((), (row(workers(1), None, outcome=None),)))
    assert f"{ran} Some repeats ended otherwise" in whole and lacking not in whole
    assert ran not in short and lacking in short and "Some repeats" not in short


def test_the_head_says_how_many_loader_processes_are_enough_in_the_best_cells_row_alone() -> None:
    rates = {("a", 0): 100.0, ("a", 1): 150.0, ("b", 0): 10.0, ("b", 1): 10.0}
    rows = [one for (pool, count), rate in rates.items() for one in repeats(workers(count, pool), rate)]
    report = report_of(rows)
    assert report.loading == ["a: MP-1 is the fastest measured (x1.500 (1.500–1.500) over MP-0), and no larger count was tried."]
    lines = report.section("data_loading").block(Bullets).lines
    assert list(lines) == [*report.loading, "b: MP-0 is enough; MP-1 adds nothing."]
    assert report.section("data_loading").on_page
    alone = report_of(rows[:6])
    assert alone.loading == [report.loading[0].removeprefix("a: ")] and not alone.section("data_loading").on_page
