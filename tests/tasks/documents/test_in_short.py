"""What README says of a published sweep. Nothing here is a measurement."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.stats.verdict import Verdict
from tasks.analysis.looks import NOT_LOOKED
from tasks.documents.in_short import MOST_LINES, InShort, in_short, line_of
from tasks.report.answer import find_answers
from tasks.report.published_pages import SweepOnPage
from tests.tasks.cell_support import OTHER, ROUGH, disturbed, in_threes, judged, made, repeats, report_of, row, settings, workers


def sweep(*, repeated: bool = True) -> SweepOnPage:
    return cast(SweepOnPage, SimpleNamespace(repeated=repeated))


def groups(*counts: int) -> list[Any]:
    """Rows of as many cells that are compared with each other, for each of the counts."""
    rates = (100.0, 125.0)
    return [
        one
        for number, count in enumerate(counts)
        for at in range(count)
        for one in repeats(workers(at, model=f"m_{number}"), rates[at], OTHER)
    ]


OF_MODELS = {**settings(rows=("model",)), "same_work": ["model"]}


def test_a_winner_is_told_by_what_sets_it_apart_from_the_next() -> None:
    [found] = find_answers(in_threes((100.0, 150.0, 120.0)))
    assert re.fullmatch(r"\*\*150\.0 samples/s\*\* ±\d\.\d %, MP-1: x1\.250 \(1\.2\d+–1\.2\d+\) over the next, 3 compared", line_of(found))


def test_one_whose_loss_parity_is_unproven_is_not_claimed() -> None:
    [found] = find_answers(judged(150.0, bf16=ParityStatus.UNPROVEN))
    assert ", bf16: x1.250 (1.2" in line_of(found) and line_of(found).endswith(
        " over the next, 3 compared; not claimed: loss parity unproven"
    )


@pytest.mark.parametrize(("parity", "said"), [(ParityStatus.UNPROVEN, "; loss parity unproven"), (ParityStatus.PROVEN, "")])
def test_without_a_winner_the_best_is_told_by_what_sets_it_apart_from_those_beside_it(parity: ParityStatus, said: str) -> None:
    rates = {"fp32": (100.0, ROUGH), "bf16": (110.0, ROUGH[::-1]), "fp16": (1.0, OTHER)}
    rows = [one for precision, (rate, apart) in rates.items() for one in repeats(workers(0, precision=precision), rate, apart)]
    cells = made(rows, settings(rows=("precision",)))
    for cell in cells:
        if cell.axes["precision"] != "fp32":
            cell.parity = Parity(parity)
    [found] = find_answers(cells)
    assert [cell.short for cell in found.level] == ["fp32"], "not what is far behind"
    assert re.fullmatch(rf"\*\*110\.0 samples/s\*\* \S.*, bf16: the best of 3, no clear winner{said}", line_of(found))


def test_loss_parity_is_told_as_unproven_where_it_is_to_one_of_those_beside_the_best() -> None:
    """To the cell that computes as the best does there is nothing to prove."""
    rates = {(1, "bf16"): (110.0, ROUGH[::-1]), (0, "bf16"): (105.0, ROUGH), (0, "fp32"): (100.0, ROUGH)}
    rows = [one for (count, name), (rate, apart) in rates.items() for one in repeats(workers(count, precision=name), rate, apart)]
    cells = made(rows, settings(rows=("precision",)))
    for cell in cells:
        if cell.axes["precision"] == "bf16":
            cell.parity = Parity(ParityStatus.UNPROVEN)
    [found] = find_answers(cells)
    assert {found.best.may_lead(other) for other in found.level} == {True, False}
    assert line_of(found).endswith(": the best of 3, no clear winner; loss parity unproven")


def test_before_the_first_look_there_is_no_verdict_to_tell() -> None:
    cells = in_threes((100.0, 150.0, 120.0))
    for cell in cells[1:]:
        cell.verdict, cell.why_undecided = Verdict.UNDECIDED, NOT_LOOKED
    [found] = find_answers(cells)
    assert re.fullmatch(r"\*\*150\.0 samples/s\*\* ±\S+ %, MP-1: the best of 3, not decided yet", line_of(found))


def test_a_value_that_was_disturbed_says_so() -> None:
    [found] = find_answers(made([disturbed(row(workers(0)))]))
    assert line_of(found) == "**100.0 samples/s**, disturbed by other work"


def test_what_is_no_rate_has_its_name() -> None:
    metric = "latency_p50_s"
    [found] = find_answers(made([row(workers(0), 0.2, metric=metric)], settings(metric=metric)))
    assert line_of(found) == "latency p50 **200 ms**", "one cell, without an interval"


def test_groups_of_one_cell_are_left_out_beside_comparisons() -> None:
    lines = in_short(sweep(), report_of(groups(2, 1), OF_MODELS)).lines
    assert len(lines) == 1 and lines[0].startswith("m\\_0: **125.0 samples/s** "), "as Markdown"
    alone = in_short(sweep(), report_of(groups(1, 1), OF_MODELS)).lines
    assert [re.sub(r" ±\S+ %", "", line) for line in alone] == ["m\\_0: **100.0 samples/s**", "m\\_1: **100.0 samples/s**"]


@pytest.mark.parametrize(("count", "told"), [(MOST_LINES + 1, MOST_LINES + 1), (MOST_LINES + 2, MOST_LINES + 1)])
def test_of_many_groups_the_first_are_told_and_the_others_counted(count: int, told: int) -> None:
    lines = in_short(sweep(), report_of(groups(*([2] * count)), OF_MODELS)).lines
    assert len(lines) == told and (lines[-1] == "and 2 more") is (count > told)
    assert [line[:4] for line in lines[:MOST_LINES]] == ["m\\_0", "m\\_1", "m\\_2"]


def test_single_trials_tell_nothing_and_one_cell_against_itself_neither() -> None:
    assert in_short(sweep(repeated=False), report_of(groups(2), OF_MODELS)) == in_short(sweep(), None) == InShort((), 0.0)


def test_the_share_of_groups_with_a_winner_counts_those_of_two_cells_or_more() -> None:
    report = report_of(groups(2, 2, 1), OF_MODELS)
    winners = [answer.winner is not None for answer in report.answers]
    assert in_short(sweep(), report).won == 1.0 and winners == [True, True, False], "one cell has nothing to win over"
    half = replace(report, answers=[replace(report.answers[0], winner=None), *report.answers[1:]])
    assert in_short(sweep(), half).won == 0.5
    assert in_short(sweep(), report_of(groups(1), OF_MODELS)).won == 0.0


def test_a_winner_that_others_are_compared_with_gained_nothing() -> None:
    report = report_of(groups(2, 2, 1), OF_MODELS)
    first, second = report.answers[:2]
    assert first.winner is not None and not first.winner.is_compared_with
    assert in_short(sweep(), report).gained == 1.0
    baseline = replace(second, winner=replace(first.winner, is_compared_with=True))
    of_baseline = in_short(sweep(), replace(report, answers=[first, baseline, *report.answers[2:]]))
    assert (of_baseline.won, of_baseline.gained) == (1.0, 0.5)
    undecided = in_short(sweep(), replace(report, answers=[replace(first, winner=None), baseline]))
    assert (undecided.won, undecided.gained) == (0.5, 0.0)


def test_how_rates_grow_stands_before_the_comparisons(tmp_path: Path) -> None:
    rows = [
        one
        for devices, count, rate in ((1, 0, 100.0), (1, 1, 150.0), (2, 0, 190.0))
        for one in repeats(workers(count, devices=devices), rate, OTHER)
    ]
    report = report_of(rows, settings(rows=("devices",)))
    assert len(report.scaling) == 1, report.scaling
    lines = in_short(sweep(), report).lines
    assert lines[0].startswith("MP-0: from 1 to 2 devices the rate of all together grows x1.900 (") and not lines[0].endswith(".")
    assert len(lines) == 2 and "devices 1: **150.0 samples/s** " in lines[1], "not what the cell on two devices has alone"
