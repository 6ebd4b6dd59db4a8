"""The sentence that says how large a model fits."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.report.headline import headline_of
from tasks.report.largest_fit import fit_sentence, implied
from tasks.report.next_step import MEASURE
from tests.tasks.cell_support import made, report_of, row, settings

NOT, OK = Outcome.DOES_NOT_FIT, Outcome.OK
SUITE = {**settings(rows=("model",), columns="strategy", baseline={}, metric="peak_memory_bytes"), "same_work": ["model"]}


def rows(*tried: tuple[str, str, Outcome]) -> list:
    """Trials by size, strategy and outcome."""
    return [
        row(
            {"pool": "cpu", "model": size, "strategy": strategy},
            2.0**30 if outcome is OK else None,
            metric="peak_memory_bytes",
            outcome=outcome,
        )
        for size, strategy, outcome in tried
    ]


@pytest.mark.parametrize(
    ("size", "known"), [("13b", True), ("14b", True), ("14.5b", False), ("15b", False), ("16b", True), ("17b", True), ("large", False)]
)
def test_a_size_is_known_to_fit_below_one_that_did_and_not_to_above_one_that_did_not(size: str, known: bool) -> None:
    """A page advised to measure 13b, of a strategy that held 14b."""
    tried = rows(("14b", "ac", OK), ("15.5b", "ac", NOT), ("20b", "other", OK), ("1b", "other", NOT), ("16b", "ac", Outcome.CRASHED))
    [waiting] = rows((size, "ac", OK))
    if size in ("14b", "16b"):  # a further trial of a cell that ran: it is to be repeated
        assert implied([waiting.trial], tried) == []
    else:
        assert (implied([waiting.trial], tried) == [waiting.trial]) is known


def test_what_other_sizes_tell_is_not_advised_where_the_suite_asks_what_fits() -> None:
    tried = rows(("6b", "ddp", OK), ("8b", "ddp", NOT))
    below, between = (one.trial for one in rows(("5b", "ddp", OK), ("7b", "ddp", OK)))
    assert report_of(tried, SUITE, cut=[below]).next_step is None
    only = report_of(tried, SUITE, cut=[between]).next_step
    assert only is not None and only == report_of(tried, SUITE, cut=[below, between]).next_step and only.purpose == MEASURE
    other = {**SUITE, "report": {**SUITE["report"], "metric": "throughput"}}
    assert report_of(tried, other, cut=[below]).next_step is not None, "its rate is not known"


def said(*tried: tuple[str, str, Outcome]) -> str:
    return fit_sentence(made(rows(*tried), SUITE))


FLAVA = (
    ("6b", "ddp", OK),
    ("6.5b", "ddp", NOT),
    ("7b", "ddp", NOT),
    ("5.6b", "ddp", OK),
    ("28b", "ac", NOT),
    ("24b", "ac", NOT),
    ("10b", "fsdp", OK),
    ("16b", "fsdp", OK),
)


def test_each_strategy_has_its_bracket() -> None:
    assert said(*FLAVA) == (
        "Largest that fits: ddp 6b, and 6.5b, 8.3 % larger, does not; "
        "ac unknown: 24b, the smallest tried, does not fit; fsdp 16b, the largest tried."
    )


def test_sizes_are_compared_by_number_and_not_by_name() -> None:
    assert said(("900m", "ddp", OK), ("10b", "ddp", NOT), ("1.8b", "ddp", OK), ("2.7b", "ddp", NOT)) == (
        "Largest that fits: 1.8b, and 2.7b, 50.0 % larger, does not."
    ), "one strategy alone has no name"


def test_a_size_below_the_largest_that_did_not_fit_is_no_limit() -> None:
    """As by chance of a busy device: only what is larger than the largest that fitted bounds it."""
    assert said(("1b", "ddp", NOT), ("2b", "ddp", OK)) == "Largest that fits: 2b, the largest tried."


@pytest.mark.parametrize(
    "tried",
    [
        (("1b", "ddp", OK), ("2b", "ddp", OK)),  # all fitted: nothing shows the limit
        (("tiny", "ddp", OK), ("2b", "ddp", NOT)),  # not a size
        (("1b", "ddp", OK), ("1b", "fsdp", NOT)),  # sizes do not vary
        (("1b", "ddp", OK), ("2b", "ddp", Outcome.CRASHED)),
        (),
    ],
)
def test_nothing_is_said_where_nothing_shows_it(tried: tuple[tuple[str, str, Outcome], ...]) -> None:
    assert said(*tried) == ""


def test_a_crash_is_neither() -> None:
    assert said(("1b", "ddp", OK), ("2b", "ddp", Outcome.CRASHED), ("4b", "ddp", NOT)) == (
        "Largest that fits: 1b, and 4b, 300 % larger, does not; 2b crashed."
    )
    larger = said(("1b", "ddp", OK), ("2b", "ddp", NOT), ("1b", "fsdp", OK), ("2b", "fsdp", Outcome.CRASHED))
    assert larger == "Largest that fits: ddp 1b, and 2b, 100 % larger, does not; fsdp 1b, the largest that ended ok; 2b crashed."


def test_it_is_the_headline_where_each_size_stands_alone_and_a_detail_elsewhere() -> None:
    report = report_of(rows(*FLAVA), SUITE)
    alone = headline_of(report)
    assert alone.said == fit_sentence(report.cells) == report.fits and alone.details == []
    assert alone.found.startswith(f"{report.fits.removesuffix('.')}; ")
    both = headline_of(report_of(rows(("1b", "ddp", OK), ("1b", "fsdp", OK), ("2b", "ddp", NOT)), SUITE))
    assert (
        both.said.startswith("Each cell ran once")
        and "Largest that fits: ddp 1b, and 2b, 100 % larger, does not; fsdp 1b, the largest tried." in both.details
    )
