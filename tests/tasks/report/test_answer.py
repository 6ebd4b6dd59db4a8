"""The answer of a sweep: when a cell is called the fastest, and what is said where none may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments.metric import Direction
from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.looks import NOT_LOOKED
from tasks.analysis.trial_row import TrialRow
from tasks.report.answer import HOPELESS, Answer, figures_of, find_answers, over_baseline
from tasks.report.cell_names import without_labels
from tasks.report.next_step import FINISH, NextStep, Outlook
from tests.tasks.cell_support import EVEN, OTHER, ROUGH, in_threes, judged, made, repeats, report_of, row, settings, workers

COMMAND = "sweep run made_up --profile smoke"
OUTLOOK = Outlook("made-up", COMMAND, round_s=40.0, left_s=50.0)


def answer(rows: Sequence[TrialRow], suite: Any = None) -> Answer:
    """The one answer on some rows."""
    [only] = find_answers(made(rows, suite), OUTLOOK)
    return only


def test_one_winner_leads_the_next_by_its_ratio() -> None:
    cells = in_threes((100.0, 150.0, 120.0))
    [found] = find_answers(cells, OUTLOOK)
    assert found.winner is found.best is cells[1] and found.compared == 3
    assert (found.headline, found.label) == ("MP-1 is fastest", "3 cells compared")
    assert [value for value, _ in found.figures] == ["150.0 samples/s", "x1.500"]
    assert found.figures[1][1].endswith(") over the baseline MP-0")
    assert found.sentences[0].startswith("150.0 samples/s, ±") and found.sentences[1].startswith("x1.500 (1."), "no comma before a bracket"
    assert found.certainty[0].startswith("It beats every other cell; the next, MP-2, by x1.250 (1.2")
    assert found.next_step is None, "nothing is open"
    assert found.line.startswith("MP-1 is fastest: 150.0 samples/s, ±") and "; it beats every other cell" in found.line


def test_a_cell_that_its_suite_calls_baseline_is_not_named_twice() -> None:
    rungs = settings(rows=("rung",), columns="pool", baseline={"rung": "baseline"})
    rows = [one for rung, rate in (("baseline", 100.0), ("sdpa", 150.0)) for one in repeats({"pool": "cpu", "rung": rung}, rate, OTHER)]
    best = made(rows, rungs)[1]
    assert figures_of(best)[1][1].endswith(") over the baseline") and over_baseline(best).endswith(") over the baseline")


def test_all_equal_have_no_winner_and_need_no_more_repeats() -> None:
    rows = [one for count in range(3) for one in repeats(workers(count), 100.0 - count / 100, OTHER)]
    found = answer(rows)
    assert found.headline == "No clear winner: MP-1 and MP-2 are each the same as MP-0 to within 2.0 %"
    assert (found.winner, found.best.short, found.next_step) == (None, "MP-0", None)
    assert answer(rows, settings(minimum_effect=0.05)).headline.endswith("2.0 %"), "of the suite, where the suite says so"
    [asked] = find_answers(made(rows, settings(minimum_effect=0.05)), minimum=0.05)
    assert asked.headline.endswith("are each the same as MP-0 to within 5.0 %")


def test_what_is_undecided_shares_the_place_and_asks_for_the_rounds_that_would_decide_it() -> None:
    """15 more of 40 s with what is known of effect and spread; where it would take more than 50 nothing is asked for, and that is said."""
    rows = [*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 150.0, ROUGH[::-1])]
    wide = answer(rows)
    for outlook in (replace(OUTLOOK, command="sweep nightly"), replace(OUTLOOK, round_s=None)):
        [unasked] = find_answers(made(rows), outlook)
        assert unasked.next_step is None and HOPELESS not in unasked.certainty, "no step is not no hope"
    assert wide.next_step == NextStep("sweep resume made-up --budget 11m", 600.0)
    assert not any("sensible" in line for line in wide.certainty)
    found = answer([*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 110.0, ROUGH[::-1]), *repeats(workers(2), 1.0)])
    assert found.headline == "No clear winner: MP-1 and MP-0 are not shown to differ"
    assert found.certainty[0].startswith("Best measured: MP-1, 110.0 samples/s, ")
    assert "It beats 1 other." in found.certainty and "Undecided against MP-0: too wide an interval." in found.certainty
    assert found.next_step is None and found.label == "3 cells compared"
    assert found.certainty[-1] == HOPELESS == "No sensible number of repeats would decide it: more than 50 rounds as it looks now."
    rows = [*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 110.0, ROUGH[::-1])]
    [of_rounds] = find_answers(made(rows), OUTLOOK, in_rounds=True)
    assert of_rounds.next_step is None and not any("sensible" in line for line in of_rounds.certainty), "its standing says so"
    [once_more] = find_answers(made([one for one in rows if one.trial.repeat < 3]), OUTLOOK)
    assert once_more.next_step == NextStep("sweep resume made-up --budget 2m", 80.0), "two trials do not tell the spread"


def test_before_the_first_look_nothing_is_called_level_either() -> None:
    """An interval far above 1 beside `not shown to differ` would read as a contradiction, and its reason is not the interval."""
    cells = in_threes((100.0, 150.0, 120.0))
    for cell in cells[1:]:
        cell.verdict, cell.why_undecided = Verdict.UNDECIDED, NOT_LOOKED
    [found] = find_answers(cells, OUTLOOK)
    assert (found.headline, found.winner, found.best, found.compared) == ("Not decided yet", None, cells[1], 3)
    assert found.certainty[0].startswith("Best measured: MP-1, 150.0 samples/s, ±")
    assert found.certainty[1:] == [], "when verdicts come is said of the whole sweep"
    assert found.line.startswith("Not decided yet; best measured: MP-1, 150.0 samples/s, ±")
    assert found.next_step == NextStep("sweep resume made-up --budget 3m", 120.0)
    cells[2].verdict, cells[2].why_undecided = Verdict.FASTER, None
    [found] = find_answers(cells, OUTLOOK)
    assert not found.early and found.headline != "Not decided yet", "the table has a verdict"


def test_a_cell_that_the_table_calls_slower_is_not_said_not_to_differ() -> None:
    """MP-1 is undecided against both as the best of three; an earlier look had decided it against the baseline, MP-0."""
    rates = (100.0, 112.0, 111.0)
    cells = made([one for count, rate in enumerate(rates) for one in repeats(workers(count), rate, ROUGH if count % 2 else ROUGH[::-1])])
    [undecided] = find_answers(cells, OUTLOOK)
    assert undecided.headline == "No clear winner: MP-1 is not shown to differ from MP-2 and MP-0"
    cells[1].verdict = Verdict.FASTER
    [found] = find_answers(cells, OUTLOOK)
    assert found.headline == "No clear winner: MP-1 and MP-2 are not shown to differ"
    assert "The table's verdict on it and MP-0 does not allow for its having been picked as the best." in found.certainty
    assert [cell.short for cell in found.level] == ["MP-2", "MP-0"], "all that it does not beat as the best of them"


def test_one_trial_a_cell_calls_nothing_faster() -> None:
    rows = [row(workers(count), rate, within=1e-4) for count, rate in enumerate((100.0, 500.0))]
    found = answer(rows)
    assert found.headline == "Each cell ran once: no setting is called faster"
    assert found.winner is None and found.figures == ()
    assert found.certainty[0].startswith("Best measured: MP-1, 500.0 samples/s, ")
    assert found.next_step == NextStep("sweep resume made-up --budget 2m", 80.0)
    losses = [row(workers(count), loss, metric="eval_loss_after") for count, loss in enumerate((0.3, 0.2))]
    assert answer(losses, settings(metric="eval_loss_after")).headline == "Each cell ran once: no setting is called better"
    failed = row(workers(1), None, repeat=2, outcome=Outcome.CRASHED)
    counts = "No cell has two trials that count: no setting is called faster"
    assert answer([*rows, failed]).headline == counts, "a repeat that failed is no second trial, and MP-1 did not run once"
    assert answer([*rows, row(workers(1), None, repeat=2, outcome=None)]).headline == found.headline, "nor is one that is to do"


def test_a_winner_tells_of_cells_that_have_no_value() -> None:
    """Eight cells were planned: two have ended, one did not fit."""
    ended = [*repeats(workers(0), 100.0), *repeats(workers(1), 150.0), row(workers(2), None, outcome=Outcome.DOES_NOT_FIT)]
    found = answer([*ended, *(row(workers(count), None, outcome=None) for count in range(3, 8))])
    assert found.headline == "MP-1 is fastest so far"
    assert found.certainty[0].startswith("It beats the only other cell with a value, MP-0, by x1.50")
    assert found.certainty[1] == "6 cells have no value: 1 does not fit, 5 to do."
    whole = answer(ended)
    assert whole.headline == "MP-1 is fastest" and whole.certainty[1] == "1 cell has no value: 1 does not fit."
    more = answer([*ended, row(workers(3), None, outcome=Outcome.DOES_NOT_FIT)])
    assert more.certainty[1] == "2 cells have no value: 2 do not fit."


def test_the_only_answer_counts_the_cells_of_groups_without_a_value_too() -> None:
    """Seven cells of two models: one has a value. Where both models have one, no answer tells of the other's."""
    tiny, mini = ([workers(count, model=model) for count in range(size)] for model, size in (("tiny", 5), ("mini", 2)))
    to_do = [row(axes, None, outcome=None) for axes in (*tiny[1:], *mini)]
    suite = {**settings(rows=("model",)), "same_work": ["model"]}
    found = answer([row(tiny[0], 100.0), *to_do], suite)
    assert found.certainty == ["There is nothing to compare it with.", "6 cells have no value: 6 to do."]
    both = find_answers(made([row(tiny[0], 100.0), row(mini[0], 50.0), *to_do[:4], to_do[5]], suite))
    assert [one.certainty[1] for one in both] == ["4 cells have no value: 4 to do.", "1 cell has no value: 1 to do."]
    winner = answer([*repeats(tiny[0], 100.0), *repeats(tiny[1], 150.0), to_do[4]], suite)
    assert winner.headline.endswith(" is fastest"), "the other model's cell cannot beat it"
    assert (
        winner.certainty[0].startswith("It beats the other, MP-0 · tiny, by x1.50")
        and winner.certainty[1] == "1 cell has no value: 1 to do."
    )


def test_a_cell_without_the_metric_is_not_said_to_be_ok() -> None:
    found = answer([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0), row(workers(2), None)])
    assert found.certainty[1] == "1 cell has no value: 1 without the metric."


def test_a_disturbed_cell_alone_says_so() -> None:
    [one] = repeats(workers(0), 100.0, (0.0,))
    assert one.result is not None
    disturbed = replace(one, result=one.result.model_copy(update={"disturbed": "another process"}))
    assert answer([disturbed]).headline.endswith(", disturbed by other work")


def test_a_cell_that_another_beats_is_not_called_the_best_by_its_mean() -> None:
    """Rounds 1 and 2 were slow and MP-0 ran only later: its mean is higher, and in every common round MP-1 is faster."""
    slow, fast = 60.0, 100.0
    rates = [(1, number, (slow if number <= 2 else fast) * 1.1 * (1 + 0.001 * (-1) ** number)) for number in range(1, 7)]
    rates += [(0, number, fast * (1 + 0.0005 * (-1) ** (number // 2))) for number in range(3, 7)]
    found = answer([row(workers(count), rate, repeat=number) for count, number, rate in rates])
    assert found.best.axes["dataloader_workers"] == 1 and found.headline == "MP-1 is fastest"


def test_of_one_and_two_trials_the_single_one_is_not_beaten() -> None:
    rows = [*repeats(workers(0), 100.0, (0.0, 0.001)), *repeats(workers(1), 500.0, (0.0, 0.001)), row(workers(2), 10.0, within=1e-4)]
    found = answer(rows)
    assert found.winner is None
    assert found.headline == "No clear winner: MP-1 and MP-2 are not shown to differ"
    assert "Undecided against MP-2: one trial." in found.certainty
    assert found.next_step == NextStep("sweep resume made-up --budget 2m --no-until-decided", 80.0), "MP-1 is decided against MP-0"


@pytest.mark.parametrize("why", ["another host", "disturbed"])
def test_where_not_the_spread_keeps_it_open_as_many_rounds_again_are_asked_for(why: str) -> None:
    elsewhere = {"host_id": "other" if why == "another host" else "h"}
    rows = [
        *repeats(workers(0), 100.0, ROUGH, environment={"host_id": "h"}),
        *repeats(workers(1), 101.0, ROUGH[::-1], environment=elsewhere),
    ]
    if why == "disturbed":
        rows = [replace(one, result=one.result.model_copy(update={"disturbed": "other processes"})) for one in rows if one.result]
    [found] = find_answers(made(rows), OUTLOOK)
    assert HOPELESS not in found.certainty
    assert found.next_step is not None and found.next_step.seconds == 120.0


def test_rounds_of_all_cells_are_asked_for_where_what_is_level_is_decided_against_the_baseline() -> None:
    """Else a resume gives rounds only to cells that are undecided against it, which may be none, or others."""
    level = [*repeats(workers(1), 200.0), *repeats(workers(2), 204.0, EVEN[::-1])]
    other = repeats(workers(3), 101.5, EVEN[::-1])
    rows = [*repeats(workers(0), 100.0), *level, *other]
    assert [cell.verdict for cell in made(rows)] == [None, Verdict.FASTER, Verdict.FASTER, Verdict.UNDECIDED]
    found = answer(rows)
    assert found.headline == "No clear winner: MP-2 and MP-1 are not shown to differ"
    assert found.next_step == NextStep("sweep resume made-up --budget 12m --no-until-decided", 640.0)


def test_what_is_no_sweep_run_goes_on_otherwise() -> None:
    rows = [*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 110.0, ROUGH[::-1])]
    for command in ("sweep nightly", "sweep campaign autumn"):
        [found] = find_answers(made(rows), replace(OUTLOOK, command=command))
        assert found.next_step is None
    [unknown] = find_answers(made(rows), replace(OUTLOOK, round_s=None))
    assert unknown.next_step is None, "nothing tells how long a round takes"


def test_trials_that_are_to_do_are_the_next_step() -> None:
    rows = [row(workers(count), 100.0 + count) for count in (0, 1)]
    waiting = row(workers(2), None, outcome=None)
    [found] = find_answers(made([*rows, waiting]), replace(OUTLOOK, waiting=True))
    assert found.next_step == NextStep("sweep resume made-up", 50.0, FINISH), "also of a cell without any trial"
    step = report_of([*rows, waiting]).next_step
    assert step is not None and step.command == "sweep resume made-up" and step.seconds is None, "nothing is known of that cell"
    stopped = row(workers(2), None, outcome=Outcome.CANCELLED)
    step = report_of([*rows, stopped]).next_step
    assert step is not None and step.command == "sweep resume made-up"
    assert step.seconds is None, "of a trial that was stopped nobody knows how long it would have taken"


def test_a_struck_cell_never_wins_and_is_said() -> None:
    [found] = find_answers(judged(150.0, bf16=ParityStatus.STRUCK))
    assert (found.headline, found.compared) == ("fp16 is fastest", 2)
    assert found.certainty[1] == "bf16 was measured faster (150.0 samples/s) and is struck: made up."
    [slower] = find_answers(judged(50.0, bf16=ParityStatus.STRUCK))
    assert len(slower.certainty) == 1, "slower than the best: the table says it"
    [alone] = find_answers(judged(150.0, bf16=ParityStatus.STRUCK, fp16=ParityStatus.STRUCK))
    assert alone.headline.startswith("fp32: 100.0 samples/s") and alone.winner is None
    assert [line.split(" was")[0] for line in alone.certainty[1:]] == ["bf16", "fp16"]
    assert find_answers(judged(150.0, **dict.fromkeys(("fp32", "bf16", "fp16"), ParityStatus.STRUCK))) == []


def test_an_unproven_best_is_measured_fastest_and_not_called_it() -> None:
    [found] = find_answers(judged(150.0, bf16=ParityStatus.UNPROVEN))
    assert found.winner is None
    assert found.headline == "bf16 was measured fastest; not claimed: loss parity unproven"
    assert "; x1.250 (1.2" in found.certainty[0] and found.certainty[0].endswith("over the next, fp16.")
    assert found.certainty[1:] == ["Its loss parity is unproven: made up.", "Without the unproven: fp16 is fastest."]
    assert found.line.startswith("bf16 was measured fastest: 150.0 samples/s, ±") and "; x1.250 (1.2" in found.line
    assert found.line.endswith("over the next, fp16: not claimed, since its loss parity is unproven")
    assert found.next_step is None, "nothing is known of how the sweep was started"
    [slower] = find_answers(judged(110.0, bf16=ParityStatus.UNPROVEN))
    assert slower.headline == "fp16 is fastest", "what it beats need not be proven"


@pytest.mark.parametrize(("seeds", "pairs", "asked"), [(0, 0, True), (2, 3, True), (3, 2, True), (3, 3, False)])
def test_references_are_asked_for_where_they_are_too_few(seeds: int, pairs: int, asked: bool) -> None:
    cells = judged(150.0, bf16=ParityStatus.UNPROVEN)
    for cell in cells:
        if cell.parity is not None:
            cell.parity = replace(cell.parity, seeds=seeds, pairs=pairs)
    [found] = find_answers(cells, Outlook("made-up", "sweep run training --profile full --repeats 2", round_s=60.0))
    purpose = "To show that it learns the same, with parity_reference: 3 in the suite"
    step = NextStep("sweep run training --profile full --repeats 3", None, purpose)
    assert found.next_step == (step if asked else None), "else its note tells how many steps would show it"
    [night] = find_answers(cells, Outlook("made-up", "sweep nightly"))
    assert night.next_step is None


def test_an_unproven_cell_that_cannot_be_told_apart_is_named() -> None:
    [found] = find_answers(judged(120.1, bf16=ParityStatus.UNPROVEN))
    assert found.headline == "No clear winner: fp16 is the same as bf16 to within 2.0 %"
    assert "Loss parity is unproven: bf16." in found.certainty
    assert "It beats 1 other." not in found.certainty, "it may not be claimed to beat fp32"
    assert "It was measured faster than 1 other: not claimed, since loss parity is unproven." in found.certainty


def test_none_can_be_told_apart_is_said_only_where_no_two_were() -> None:
    noise = (ROUGH, ROUGH[::-1], (0.2, -0.2, 0.0))
    rows = [one for count in range(3) for one in repeats(workers(count), 100.0 - count, noise[count])]
    assert answer(rows).headline == "No clear winner: MP-0, MP-1 and MP-2 are not shown to differ"
    apart = [*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 95.0, OTHER), *repeats(workers(2), 80.0, OTHER[::-1])]
    assert answer(apart).headline == "No clear winner: MP-0 is not shown to differ from MP-1 and MP-2", "MP-1 is faster than MP-2"
    five = [one for count in range(5) for one in repeats(workers(count), 100.0 - count, noise[count % 3])]
    assert answer(five).headline == "No clear winner: MP-0 is not shown to differ from MP-1, MP-2, MP-3 and MP-4", "only with the best"


def test_a_cell_that_no_reference_was_held_against_does_not_win_over_one() -> None:
    """fp16 with a batch of 64 computes as its baseline does; the batch that fp32 was run with is another."""
    rates = {("fp32", 32): 100.0, ("fp16", 32): 150.0, ("fp16", 64): 200.0}
    rows = [
        row(
            {"pool": "cpu", "precision": precision, "batch_size": batch},
            rate * (1 + deviation),
            repeat=seed + 1,
            losses=[loss * (3.0 if step < 20 else 1.0) for step in range(120)],
            parameters={"seed": seed},
        )
        for (precision, batch), rate in rates.items()
        for loss in [9.0 if batch == 64 else 2.0]
        for seed, deviation in enumerate(OTHER)
    ]
    suite = settings(rows=("precision",), columns="batch_size", baseline={"batch_size": 32})
    found = answer(rows, suite)
    assert (found.winner, found.best.short) == (None, "fp16 · batch_size 64")
    assert found.headline == "fp16 · batch_size 64 was measured fastest; not claimed: loss parity unproven"
    assert found.certainty[1] == (
        "Its loss parity is unproven against fp32 · batch_size 32: "
        "its loss was compared with no reference, since none in the sweep learns the same."
    )
    assert found.certainty[2] == "Without the unproven: fp16 · batch_size 32 is fastest."


def test_unproven_cells_that_compute_alike_are_ranked_among_each_other() -> None:
    rows = [one for count, rate in enumerate((100.0, 150.0)) for one in repeats(workers(count, precision="bf16"), rate, OTHER)]
    cells = made(rows, settings(rows=("precision",)))
    for cell in cells:
        cell.parity = Parity(ParityStatus.UNPROVEN)
    [found] = find_answers(cells)
    assert found.headline == "MP-1 is fastest"


def test_two_groups_of_work_have_an_answer_each() -> None:
    rates = {("a", 0): 100.0, ("a", 1): 125.0, ("b", 0): 10.0, ("b", 1): 10.001, ("c", 0): 7.0}
    rows = [one for (model, count), rate in rates.items() for one in repeats(workers(count, model=model), rate, OTHER)]
    suite = {**settings(rows=("model",)), "same_work": ["model"]}
    found = find_answers(made(rows, suite), OUTLOOK)
    assert [answer.work for answer in found] == ["a", "b", "c"]
    assert found[0].line.startswith("a: MP-1 is fastest: 125.0 samples/s, ±")
    assert found[1].line.startswith("b: No clear winner: MP-0 is the same as MP-1 to within 2.0 %; best measured: MP-1, 10")
    assert found[2].line.startswith("MP-0 · c: 7.000 samples/s, ±"), "one cell alone has no superlative, and its name tells its work"
    assert [one.winner is not None for one in found] == [True, False, False]


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("batch_size 1 · sdpa is best: 7 ms", "sdpa is best: 7 ms"),
        ("sdpa · batch_size 1 · graph, eager · batch_size 1, and no graph · batch_size 1.", "sdpa · graph, eager, and no graph."),
        ("sdpa · batch_size 16 and sdpa · batch_size 1.5", "sdpa · batch_size 16 and sdpa · batch_size 1.5"),
        ("my_batch_size 1 · sdpa", "my_batch_size 1 · sdpa"),
    ],
)
def test_names_beside_their_work_leave_its_labels_out(said: str, short: str) -> None:
    """And no label that only begins or ends like one."""
    assert without_labels(said, "batch_size 1") == short


def test_each_label_of_a_work_is_left_out_wherever_it_stands() -> None:
    assert without_labels("128 · sdpa · b 1 · graph beats b 1 · 128 · eager", "128 · b 1") == "sdpa · graph beats eager"


def test_one_cell_alone_is_just_its_value() -> None:
    found = answer([row(workers(0))])
    assert found.headline == "cpu · MP-0: 100.0 samples/s, no interval: it needs repeats"
    assert found.certainty == ["There is nothing to compare it with."] and found.winner is None and found.label == "1 cell compared"


def test_nothing_that_measured_has_no_answer() -> None:
    assert find_answers(made([row(workers(0), None, outcome=Outcome.CRASHED)])) == []
    assert find_answers([]) == []
    [cell] = made([row(workers(0), 3.0)])
    cell.metric = replace(cell.metric, direction=Direction.NEITHER)
    assert find_answers([cell]) == [], "better neither high nor low"


def test_less_is_better_for_a_time() -> None:
    metric = "step_time_median_s"
    rows = [one for count, value in enumerate((0.3, 0.2, 0.25)) for one in repeats(workers(count), value, OTHER, metric=metric)]
    found = answer(rows, settings(metric=metric))
    assert found.headline == "MP-1 is best" and found.figures[0][0] == "200 ms" and found.figures[1][0] == "x1.500"
    assert "the next, MP-2, by x1.25" in found.certainty[0]


@pytest.mark.parametrize(("rate", "place"), [(101.0, None), (104.0, "MP-1")])
def test_the_winners_margin_is_two_percent(rate: float, place: str | None) -> None:
    found = answer([*repeats(workers(0), 100.0, OTHER), *repeats(workers(1), rate, OTHER)])
    assert (found.winner and found.winner.short) == place


def test_a_winner_that_is_the_baseline_says_so() -> None:
    [found] = find_answers(in_threes((150.0, 100.0, 120.0)))
    assert len(found.figures) == 1
    assert found.certainty[0].startswith("It is the baseline. It beats every other cell; the next, MP-2, by x1.25")


def test_an_interval_wider_than_the_value_has_no_plus_minus() -> None:
    found = answer(repeats(workers(0), 100.0, (-0.5, 0.5)))
    assert found.headline == "cpu · MP-0: 100.0 samples/s, interval too wide to use"


def test_the_best_of_many_equal_cells_is_not_called_the_fastest() -> None:
    """Ten equal cells, the largest of which is ahead by chance."""
    rates = (100.0, 100.4, 99.8, 101.2, 99.5, 100.1, 100.9, 99.2, 100.3, 99.9)
    rows = [one for count, rate in enumerate(rates) for one in repeats(workers(count), rate, EVEN)]
    assert answer(rows).winner is None
