"""How the comparisons of a sweep with a budget stand, and the command that would decide the rest."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.stats.interim_looks import Look
from experiments.trial import Outcome, label
from tasks.analysis.rounds_left import SENSIBLE
from tasks.analysis.trial_row import TrialRow
from tasks.report.model import Report
from tasks.report.next_step import MEASURE, MEASURE_AND_DECIDE, NextStep
from tasks.report.standing import _beyond_the_campaign, _decided, standing_of, stands
from tasks.sweep.store import DecideSettings
from tests.tasks.cell_support import disturbed, repeats, report_of, settings, source_of, workers

LOOKS = [Look(round=3, spent=0.2), Look(round=5, spent=0.75)]
QUIET = (0.001, -0.001, 0.0005, -0.0005, 0.0)


def rows(*cells: tuple[float, tuple[float, ...]]) -> list[TrialRow]:
    """Cells with 0, 1, ... loader processes: rate and deviations; 50 s a trial, a minute apart."""
    made = [one for count, (rate, noise) in enumerate(cells) for one in repeats(workers(count), rate, noise)]
    starts = [60.0 * (len(cells) * one.trial.repeat + one.trial.axes["dataloader_workers"]) for one in made]  # type: ignore[operator]
    times = [{"started_at": start, "finished_at": start + 50.0} for start in starts]
    return [replace(one, result=one.result.model_copy(update=when)) for one, when in zip(made, times, strict=True) if one.result]


def reported(looks: list[Look], *cells: tuple[float, tuple[float, ...]]) -> Report:
    return report_of(rows(*cells), decide=DecideSettings(budget_s=600.0, until_decided=True, looks=looks))


def scaled(by: float) -> tuple[float, ...]:
    return tuple(by * one for one in (1.0, -1.0, 0.5, -0.8, 0.3))


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((101.0, 99.0), "0 of 2 comparisons with the baseline are decided"),
        ((150.0, 99.0), "1 of 2 comparisons with the baseline is decided after 3 rounds"),
        ((150.0, 50.0, 99.0), "2 of 3 comparisons with the baseline are decided after 3 rounds"),
        ((150.0,), "The comparison with the baseline is decided after 3 rounds"),
        ((101.0,), "The comparison with the baseline is undecided"),
    ],
)
def test_how_many_are_decided(rates: tuple[float, ...], said: str) -> None:
    standing = reported(LOOKS, (100.0, QUIET), *((rate, QUIET[::-1] if abs(rate - 100) > 1 else scaled(0.05)) for rate in rates)).standing
    assert standing is not None and standing.line.partition("; ")[0] == said


@pytest.mark.parametrize(("after", "said"), [((3, 3), "3 rounds"), ((3, 5), "3 to 5 rounds"), ((9, 5, 3), "3 to 9 rounds")])
def test_after_how_many_rounds_they_were_decided(after: tuple[int, ...], said: str) -> None:
    cells = reported(LOOKS, (100.0, QUIET), *((130.0, QUIET[::-1]) for _ in after)).cells
    compared = [cell for cell in cells if cell.verdict is not None]
    for cell, rounds in zip(compared, after, strict=True):
        cell.decided_after = rounds
    assert _decided(compared) == f"All comparisons with the baseline are decided after {said}"


def test_all_are_decided() -> None:
    standing = reported(LOOKS, (100.0, QUIET), (130.0, QUIET[::-1]), (150.0, QUIET)).standing
    assert standing is not None
    assert (standing.line, standing.step) == ("All comparisons with the baseline are decided after 3 rounds", None)


@pytest.mark.parametrize("failing", ["MP-2", "MP-0"])
def test_what_keeps_failing_is_not_pursued_and_nothing_is_advised(failing: str) -> None:
    """MP-1 was decided before. MP-2, or its baseline, failed in the last two rounds."""
    made = rows((100.0, QUIET), (130.0, QUIET[::-1]), (106.0, scaled(0.035)))
    made = [
        replace(one, result=one.result.model_copy(update={"outcome": Outcome.CRASHED, "reason": "KeyError"}))
        if one.result and label("dataloader_workers", one.trial.axes["dataloader_workers"]) == failing and one.trial.repeat > 3
        else one
        for one in made
    ]
    report = report_of(made, decide=DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS))
    standing = report.standing
    assert standing is not None
    assert standing.line == (
        "1 of 2 comparisons with the baseline is decided after 3 rounds; "
        "1 is not pursued: the last two trials of the cell, or of its baseline, failed"
    )
    assert (standing.step, standing.left, report.next_step) == (None, {}, None)
    assert report.section("standing").table.rows[1][3].startswith("not pursued: the last two trials")


def test_what_the_rest_would_take() -> None:
    report = reported(LOOKS, (100.0, QUIET), (130.0, QUIET[::-1]), (106.0, scaled(0.035)))
    standing = report.standing
    assert standing is not None
    [(name, left)] = standing.left.items()
    assert left is not None and 2 <= left <= 8, "its standard error is about 1.2 %, its effect 6 %"
    minutes = 2 * left  # two cells of a minute each
    assert (
        standing.line
        == f"1 of 2 comparisons with the baseline is decided after 3 rounds; 1 undecided: about {left} more rounds, {minutes} min"
    )
    needed = -(-11 * minutes // 10)
    assert report.next_step == standing.step == NextStep(f"sweep resume made-up --budget {needed}m", 60.0 * minutes)
    table = report.section("standing").table
    assert [row[0] for row in table.rows] == ["MP-1", name] and table.rows[0][1::2] == ["faster", "decided after 3 rounds"]
    assert table.rows[1][1::2] == ["undecided", f"about {left} more rounds"]


def test_where_rounds_are_of_all_cells_so_are_their_times_and_budgets() -> None:
    """FLAVA's page had 52 min for 41 rounds of eight cells, of which it had counted four."""
    settings = DecideSettings(budget_s=600.0, until_decided=False, looks=LOOKS)
    report = report_of(rows((100.0, QUIET), (130.0, QUIET[::-1]), (106.0, scaled(0.035))), decide=settings)
    assert report.standing is not None
    [left] = [rounds for rounds in report.standing.left.values() if rounds is not None]
    minutes = 3 * left  # the decided one runs with them
    assert report.standing.line.endswith(f"1 undecided: about {left} more rounds, {minutes} min")
    assert report.next_step == NextStep(f"sweep resume made-up --budget {-(-11 * minutes // 10)}m", 60.0 * minutes)


def test_references_run_with_the_cells_until_loss_parity_has_its_seeds() -> None:
    """ViT's page advised a budget of 6 min for two rounds that take 6 min 7 s with their reference: the second would not have fitted."""
    first = rows((100.0, QUIET[:1]), (130.0, QUIET[:1]), (110.0, QUIET[:1]))
    made = [*first[:2], replace(first[2], trial=first[2].trial.model_copy(update={"reference": True}))]
    for seeds, minutes in ((3, 6.0), (0, 4.0)):
        decide = DecideSettings(budget_s=600.0, until_decided=False)
        standing = report_of(made, {**settings(), "parity_reference": seeds}, decide=decide).standing
        assert standing is not None and standing.step is not None and standing.step.seconds == 60.0 * minutes, seeds


def test_what_there_was_no_time_for_comes_before_other_rounds() -> None:
    """A cell that was measured lacks a trial, which takes its minute; two cells were never begun: as long as the longest of the others."""
    made = rows((100.0, QUIET[:2]), (130.0, QUIET[:2]))
    cut = [made[0].trial, *(repeats(workers(count), 1.0, QUIET[:1])[0].trial for count in (2, 4))]
    decide = DecideSettings(budget_s=600.0, until_decided=True)
    found = report_of(made, decide=decide, cut=cut).next_step
    assert found == NextStep("sweep resume made-up --budget 6m", 300.0, MEASURE_AND_DECIDE), "3 and a round of 2"


def test_where_nothing_else_is_open_what_there_was_no_time_for_is_next() -> None:
    made = rows((100.0, QUIET), (130.0, QUIET[::-1]), (150.0, QUIET))
    cut = [repeats(workers(4), 1.0, QUIET[:1])[0].trial]
    report = report_of(made, decide=DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS), cut=cut)
    assert report.standing is not None and report.standing.step is None
    assert report.next_step == NextStep("sweep resume made-up --budget 2m", 60.0, MEASURE)
    once = report_of(made, cut=cut).next_step
    assert once is not None and once.purpose.startswith(MEASURE)


def test_nobody_knows_how_long_a_search_for_the_largest_batch_takes() -> None:
    """A report said that what a search of 12 minutes had not come to would be measured in 7 s."""
    made = rows((100.0, QUIET), (130.0, QUIET[::-1]))
    [largest] = [one.trial for one in repeats(workers(4), 1.0, QUIET[:1])]
    largest = largest.model_copy(update={"parameters": {**largest.parameters, "batch_size": "max"}})
    found = report_of(made, cut=[largest]).next_step
    assert found is not None and found.lead == f"{MEASURE}, in about 60 s and what the search for the largest batch takes"
    again = [*made, replace(made[0], trial=largest)]
    once_more = report_of(again, cut=[largest.model_copy(update={"key": "f" * 16, "repeat": 2})]).next_step
    assert once_more is not None and once_more.lead.startswith(MEASURE) and "search" not in once_more.lead, "the size was found"


def test_a_speed_up_that_is_not_claimed_is_not_called_faster() -> None:
    plain, half = repeats(workers(0, precision="fp32"), 100.0, QUIET), repeats(workers(0, precision="bf16"), 130.0, QUIET[::-1])
    report = report_of(
        [*plain, *half],
        {**settings(), "baseline": {"precision": "fp32"}},
        decide=DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS),
    )
    assert [row[1] for row in report.section("standing").table.rows] == ["unproven"]


def test_what_no_sensible_number_of_rounds_decides() -> None:
    standing = reported(LOOKS, (100.0, QUIET), (102.0, scaled(0.2))).standing
    assert standing is not None and standing.step is None and list(standing.left.values()) == [None]
    hopeless = f"it cannot be decided with a sensible number of repeats: more than {SENSIBLE} rounds as it looks now"
    assert standing.line == f"The comparison with the baseline is undecided; {hopeless}"


def test_too_few_trials_that_count_are_not_called_hopeless() -> None:
    """Of three trials each, one of a cell was not disturbed: nobody knows how far its trials lie apart, so nothing is foretold."""
    made = rows((100.0, QUIET[:3]), (130.0, QUIET[:3]))
    told = [
        replace(one, result=one.result.model_copy(update={"disturbed": "another process"})) if one.result and one.trial.repeat > 1 else one
        for one in made
    ]
    report = report_of(told, decide=DecideSettings(budget_s=600.0, until_decided=True, looks=[Look(round=3, spent=0.2)]))
    standing = report.standing
    assert standing is not None and list(standing.left.values()) == [None]
    why = "it has too few trials that count, as others were disturbed or failed: 3 more rounds would tell"
    assert standing.line == f"The comparison with the baseline is undecided; {why}"
    assert standing.step is not None and standing.step.command.startswith("sweep resume made-up --budget ")
    assert report.section("standing").table.rows[0][-1] == "not known yet: too few trials that count"


def test_before_the_first_look() -> None:
    report = reported([], (100.0, QUIET[:2]), (130.0, QUIET[:2]))
    assert report.standing is not None and report.standing.line == "No comparison is decided yet: verdicts come after 3 rounds"
    assert report.next_step == NextStep("sweep resume made-up --budget 3m", 120.0), "a round is missing, and the budget has no room"
    once = report_of(rows((100.0, QUIET[:2]), (130.0, QUIET[:2])), decide=DecideSettings(budget_s=600.0, until_decided=False)).standing
    assert once is not None and once.line == "No comparison is decided yet: verdicts come once no other round fits the sweep's time"


@pytest.mark.parametrize("plan", [{}, {"decide": DecideSettings(budget_s=600.0, looks=LOOKS)}])
def test_a_sweep_that_compares_nothing_or_has_no_budget_says_nothing(plan: dict[str, Any]) -> None:
    cells = rows((100.0, QUIET)) if plan else rows((100.0, QUIET), (130.0, QUIET))
    source = source_of(cells, **plan)
    assert standing_of(source.sweep, source.cells) is None


def test_what_was_not_measured_on_one_host_needs_rounds_there_and_not_more_than_is_sensible() -> None:
    made = rows((100.0, QUIET), (103.0, QUIET))
    away = [replace(one, environment={"host_id": str(one.trial.axes["dataloader_workers"])}) for one in made]
    source = source_of(away, decide=DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS))
    standing = standing_of(source.sweep, source.cells)
    assert standing is not None and standing.step is not None
    told = "it was not measured on one host in one sitting: 3 more rounds there would compare them"
    assert standing.line == f"The comparison with the baseline is undecided; {told}"
    assert stands(source.cells[1], standing) == "not compared yet: not measured on one host in one sitting"


AUTUMN = {"command": "sweep campaign autumn", "labels": {"sweep.campaign": "autumn"}}


@pytest.mark.parametrize(
    ("most", "gives", "step"),
    [
        (5, "gives it no other", None),
        (6, "gives it 1 of these", NextStep("sweep resume made-up --budget 3m", 120.0)),
        (99, None, NextStep("sweep resume made-up --budget 9m", 480.0)),
    ],
)
def test_a_campaigns_sweep_is_advised_no_more_rounds_than_the_campaign_gives_it(
    most: int, gives: str | None, step: NextStep | None
) -> None:
    decide = DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS, most=most)
    made = rows((100.0, QUIET), (106.0, scaled(0.035)))
    own = report_of(made, decide=decide).standing
    assert own is not None and own.left == {"MP-1": 4}
    report = report_of(made, decide=decide, **AUTUMN)
    beyond = "" if gives is None else f"; campaign autumn {gives}: raise its rounds.most there to 9, and run the campaign again"
    assert report.standing is not None and report.standing.line == f"{own.line}{beyond}"
    assert (report.standing.step, report.next_step) == (step, step)


def test_rounds_of_a_campaigns_sweep_that_are_too_few_to_tell_are_not_advised_beyond_its_most() -> None:
    """Its cells ran on two hosts: as many rounds as it has at least would compare them."""
    made = [
        replace(one, environment={"host_id": str(one.trial.axes["dataloader_workers"])}) for one in rows((100.0, QUIET), (103.0, QUIET))
    ]
    report = report_of(made, decide=DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS, most=5), **AUTUMN)
    assert report.standing is not None and report.next_step is None
    beyond = "campaign autumn gives it no other: raise its rounds.most there to 8, and run the campaign again"
    assert report.standing.line.endswith(f"3 more rounds there would compare them; {beyond}")


@pytest.mark.parametrize("least", [2, 3, 4])
@pytest.mark.parametrize("cell", [0, 1])  # the baseline, or what is compared with it
def test_a_disturbed_comparison_needs_as_many_rounds_as_a_sweep_has_at_least(least: int, cell: int) -> None:
    made = [disturbed(one) if one.trial.axes["dataloader_workers"] == cell else one for one in rows((100.0, QUIET), (103.0, QUIET))]
    decide = DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS, least=least, most=5)
    standing = report_of(made, decide=decide).standing
    told = "The comparison with the baseline is undecided; it was disturbed by other work: repeat them while nothing else runs there"
    assert standing is not None and standing.line == told and standing.left == {"MP-1": None}
    minutes = 2 * least  # two cells of a minute each
    assert standing.step == NextStep(f"sweep resume made-up --budget {-(-11 * minutes // 10)}m", 60.0 * minutes)
    of_campaign = report_of(made, decide=decide, **AUTUMN).standing
    beyond = f"campaign autumn gives it no other: raise its rounds.most there to {5 + least}, and run the campaign again"
    assert of_campaign is not None and of_campaign.line == f"{told}; {beyond}" and of_campaign.step is None


def test_where_one_comparison_takes_few_rounds_and_another_dozens_both_are_told_and_the_few_are_advised() -> None:
    """FLAVA's page advised a campaign of three rounds to make 44, for one of two comparisons: the other takes three more."""
    decide = DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS, most=5)
    made = rows((100.0, QUIET), (106.0, scaled(0.035)), (102.5, scaled(0.04)))
    report = report_of(made, decide=decide, **AUTUMN)
    assert report.standing is not None
    few, dozens = report.standing.left.values()
    assert few is not None and dozens is not None and 2 <= few < 10 < dozens
    assert f"; 2 undecided: about {few} more rounds for the first, {dozens} for all, " in report.standing.line
    raised = f"campaign autumn gives it no other: raise its rounds.most there to {5 + few}, and run the campaign again"
    assert report.standing.line.endswith(raised)


def test_a_round_for_which_there_was_no_time_is_the_first_that_is_needed() -> None:
    """ViT's page advised a campaign to give a fourth round, while most of its third had not been measured."""
    decide = DecideSettings(budget_s=600.0, until_decided=True, looks=LOOKS, most=6)
    made, more = rows((100.0, QUIET), (106.0, scaled(0.035))), rows((100.0, [*QUIET, 0.0]), (106.0, [*scaled(0.035), 0.0]))
    own = report_of(made, decide=decide, **AUTUMN).standing
    begun = [*made, next(one for one in more if one.trial.repeat == 6)]
    cut = [more[-1].trial.model_dump(mode="json")]
    standing = report_of(begun, decide=decide, cut=cut, **AUTUMN).standing
    assert (
        own is not None
        and own.left == {"MP-1": 4}
        and own.line.endswith("gives it 1 of these: raise its rounds.most there to 9, and run the campaign again")
    )
    assert standing is not None and standing.left == {"MP-1": 4}
    assert standing.line.endswith("gives it no other: raise its rounds.most there to 9, and run the campaign again")


@pytest.mark.parametrize(("most", "command"), [(2, "sweep resume made-up"), (3, "sweep resume made-up --budget 3m")])
def test_a_campaigns_sweep_with_all_rounds_and_no_look_goes_on_without_a_budget(most: int, command: str) -> None:
    """Its flow ended before the look: a resume with a budget is refused, and one without makes it."""
    decide = DecideSettings(budget_s=600.0, least=2, most=most)
    step = report_of(rows((100.0, QUIET[:2]), (130.0, QUIET[:2])), decide=decide, **AUTUMN).next_step
    assert step is not None and step.command == command


@pytest.mark.parametrize(
    ("allowed", "needed", "told"),
    [
        (None, 9, []),
        (3, 3, []),
        (3, 4, ["campaign c gives it 3 of these: raise its rounds.most there to 9, and run the campaign again"]),
        (0, 1, ["campaign c gives it no other: raise its rounds.most there to 6, and run the campaign again"]),
        (0, 0, []),
    ],
)
def test_a_campaign_is_to_give_more_rounds_only_where_it_gives_fewer_than_are_needed(
    allowed: int | None, needed: int, told: list[str]
) -> None:
    plan: Any = SimpleNamespace(rounds_allowed=allowed, campaign="c", last_round=5)
    assert _beyond_the_campaign(plan, needed) == told
