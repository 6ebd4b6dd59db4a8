"""What the head of a race's report says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.race import Dropout, Why
from tasks.analysis.trial_row import TrialRow
from tasks.report.comparison_table import build_table
from tasks.report.model import Report, make_report
from tasks.report.next_step import FINISH, NextStep
from tasks.report.race_answer import why_out
from tests.tasks.race_support import changed, race_plan, race_rows, race_sweep, with_metric

EVERYONE = (0, 1, 2, 3)
LIMIT = [{"metric": "peak_memory_bytes", "sign": "<=", "limit": 1000.0}]


def reported(rows: Sequence[TrialRow], **fields: Any) -> Report:
    return make_report(race_sweep(rows, **fields))


def test_the_last_one_is_the_fastest_and_the_next_is_named() -> None:
    report = reported(race_rows([100, 50, 80, 40], [EVERYONE] * 3))
    assert report.headline == "MP-0 is fastest" and report.answer is not None
    assert [cell.axes["dataloader_workers"] for cell in report.winners] == [0]
    said = " ".join(report.answer.certainty)
    assert "The chance of a wrong winner is meant to be at most 5.0 % (docs/verdicts.md, Races)." in said
    assert "The next, MP-2, dropped out after round" in said and "surely behind: the leader is x1.2" in said
    assert "Of 4 settings, 3 dropped out in" in said and "(3 surely behind)." in said
    (figure,) = report.answer.figures  # no speed-up: a grid's verdict of it is not the race's
    assert figure[0].endswith("samples/s") and report.next_step is None
    assert report.title.endswith(" · race")


def test_settings_have_a_ratio_to_the_baseline_and_no_verdict_of_the_grid() -> None:
    """The race's own rule says who is behind: beside it `undecided` of a comparison that decided nothing would contradict it."""
    baseline, *others = (report := reported(race_rows([100, 50, 80, 40], [EVERYONE] * 3))).cells
    assert baseline.speedup is None
    for cell, ratio in zip(others, (0.5, 0.8, 0.4), strict=True):
        assert cell.speedup is not None and cell.speedup.value == pytest.approx(ratio, rel=0.05)
        assert (cell.verdict, cell.why_undecided) == (None, None)
    assert build_table(report.cells, race_plan([]).suite).signs == ""
    assert not any("ndecided" in caution for caution in report.cautions)


def test_level_settings_are_no_winner() -> None:
    report = reported(race_rows([100, 100.01, 50, 40], [EVERYONE, EVERYONE, *[(0, 1)] * 6], sd=0.001))
    assert report.headline.startswith("No clear winner: MP-") and "is within 2.0 % of the fastest, and MP-" in report.headline
    assert report.headline.endswith(" is not shown to differ from it") and report.winners == []


def test_an_open_race_says_who_leads_and_what_would_decide_it() -> None:
    report = reported(race_rows([100, 99.5, 99, 40], [EVERYONE] * 2, sd=0.01))
    assert report.headline.startswith("Not decided: MP-") and " not shown to differ from it" in report.headline
    assert report.next_step == NextStep("sweep resume made-up --budget 6s", 6.0)
    assert report.answer is not None and report.answer.label == "4 cells compared"


def test_an_interrupted_race_goes_on_by_resume() -> None:
    rows = changed(race_rows([100, 99.5, 99, 98], [EVERYONE] * 3, sd=0.01), 3, 3, rate=None, outcome=None)
    assert reported(rows).next_step == NextStep("sweep resume made-up", 1.0, FINISH)


def test_one_round_names_no_one() -> None:
    report = reported(race_rows([100, 50, 80, 40], [EVERYONE]))
    assert report.headline == "No setting can be judged before two whole rounds."
    assert report.next_step == NextStep("sweep resume made-up --budget 8s", 8.0), "two rounds of four settings, 1 s each"


def test_a_race_that_was_killed_in_its_first_round_names_the_command_that_goes_on() -> None:
    rows = changed(race_rows([100, 50, 80, 40], [EVERYONE]), 3, 1, rate=None, outcome=None)
    report = reported(rows)
    assert report.answer is None and report.next_step == NextStep("sweep resume made-up", None, FINISH)


def test_where_all_dropped_out_it_says_for_what() -> None:
    rows = race_rows([100, 50, 80, 40], [EVERYONE])
    for racer, outcome in enumerate((Outcome.DOES_NOT_FIT, Outcome.DOES_NOT_FIT, Outcome.CRASHED, Outcome.UNSUPPORTED)):
        rows = changed(rows, racer, 1, rate=None, outcome=outcome, reason="so it goes")
    assert reported(rows).headline == (
        "No setting is left. Of 4 settings, 4 dropped out in 1 round (2 does not fit, 1 crashed and 1 unsupported)."
    )


def test_a_limit_that_is_open_is_named() -> None:
    memory = {0: 900.0, 1: [800.0, 1150.0], 2: 900.0, 3: 900.0}
    report = reported(with_metric(race_rows([100, 300, 99, 50], [EVERYONE] * 2), memory), where=LIMIT)
    assert report.answer is not None and report.headline.startswith("Not decided: MP-0 leads")
    assert "Whether MP-1 keeps peak_memory_bytes<=1000 is open." in report.answer.certainty


def test_a_winner_whose_loss_was_compared_with_none_is_not_claimed() -> None:
    rows = race_rows([100, 50, 80, 40], [EVERYONE] * 3)
    other = [
        replace(one, trial=one.trial.model_copy(update={"parameters": {**one.trial.parameters, "optimizer": optimizer}}))
        for one in rows
        for optimizer in ["fused" if one.trial.axes["dataloader_workers"] == 0 else "foreach"]
    ]
    report = reported(other)
    assert report.headline == "MP-0 was measured fastest; not claimed: loss parity unproven" and report.winners == []
    assert report.answer is not None and any(line.startswith("Loss parity of MP-0: unproven") for line in report.answer.certainty)


@pytest.mark.parametrize("racer", [0, 1])
def test_nothing_is_claimed_from_disturbed_trials(racer: int) -> None:
    rows = race_rows([100, 50, 80, 40], [EVERYONE] * 3)
    marked = [
        replace(one, result=one.result.model_copy(update={"disturbed": "others used the CPU"}))
        if one.result is not None and one.trial.axes["dataloader_workers"] == racer
        else one
        for one in rows
    ]
    report = reported(marked)
    assert report.answer is not None
    if racer == 0:
        assert report.headline.endswith("all of its trials were disturbed by other work: nothing is claimed") and report.winners == []
    else:
        assert "All trials of MP-1 were disturbed by other work: perhaps not that far behind." in report.answer.certainty


@pytest.mark.parametrize(
    ("dropout", "said"),
    [
        (Dropout(0, 1, Why.ENDED, what="does_not_fit", reason="out of memory"), "does not fit: out of memory"),
        (Dropout(0, 1, Why.NO_VALUE, what="mfu"), "without mfu"),
        (Dropout(0, 1, Why.LIMIT, what="mfu>=0.4"), "surely not mfu>=0.4"),
        (Dropout(0, 1, Why.STRUCK), "loss struck"),
        (Dropout(0, 1, Why.AGAIN), "dropped by a trial that ran again since"),
        (Dropout(0, 1, Why.BEHIND, ratio=(1.2, 1.1, 1.3)), "surely behind: the leader is x1.200, at least 1.100"),
        (Dropout(0, 1, Why.BEHIND, ratio=(1.2, 0.99, 1.3)), "surely behind: the leader is x1.20"),
    ],
)
def test_why_a_setting_is_out(dropout: Dropout, said: str) -> None:
    assert why_out(dropout) == said


def test_the_section_has_rounds_and_dropouts_and_other_sweeps_have_none() -> None:
    sweep = race_sweep(race_rows([100, 50, 80, 40], [EVERYONE] * 3))
    section = make_report(sweep).section("race")
    rounds, dropouts = (block for block in section.blocks if hasattr(block, "rows"))
    assert list(rounds.rows[0][:3]) == ["1", "4", "0"] and rounds.rows[-1][3] == "MP-0"
    assert sorted(one[0] for one in dropouts.rows) == ["MP-1", "MP-2", "MP-3"]
    plain = replace(sweep, plan=sweep.plan.model_copy(update={"race": None}))
    assert "race" not in make_report(plain).section_names


def test_who_is_left_since_all_others_crashed_is_not_called_the_fastest() -> None:
    rows = race_rows([100, 50, 80, 40], [EVERYONE, (0,), (0,)])
    for racer in (1, 2, 3):
        rows = changed(rows, racer, 1, rate=None, outcome=Outcome.CRASHED)
    report = reported(rows)
    assert report.headline == "MP-0 is the only setting left: none was shown to be worse" and report.winners == []
    assert report.answer is not None
    assert any("(3 crashed)" in line for line in report.answer.certainty)
    assert not any("chance of a wrong winner" in line for line in report.answer.certainty)
