"""What looks changed is measured in pairs of commits: which cells, in which order, how many pairs, and what the verdict then is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.nightly.close import close_night
from tasks.nightly.night_run import NightRun
from tasks.nightly.pair_text import pair_sentence
from tasks.nightly.repeats import more_pairs, more_repeats
from tasks.nightly.report import change_of, headline, message, verdict_table
from tasks.nightly.store import CellVerdict
from tests.tasks.nightly.night_support import DATES, TONIGHT
from tests.tasks.nightly.pair_support import BAD, CELL, GOOD, measure, measured_with, paired_run, sides


def verdict(run: NightRun) -> CellVerdict:
    return next(item for item in run.judged()[0] if (item.name, item.metric) == (CELL, "throughput"))


def run_pairs(run: NightRun, rates: dict[str, float], noise: float = 0.002) -> int:
    """All stages; how many there were."""
    stages = 0
    while (plan := more_pairs(run)) is not None:
        measured_with(run, rates, noise)(plan)
        stages += 1
    return stages


def test_a_slow_down_of_the_code_is_confirmed_in_pairs_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    assert run_pairs(run, {GOOD: 100.0, BAD: 95.0}) == 1
    assert sides(run) == "ABBAAB"
    item = verdict(run)
    assert item.pairs is not None and (item.verdict, item.where, item.looked) == (Verdict.SLOWER, "code", Verdict.SLOWER)
    assert (item.pairs.good, item.pairs.tonight, item.pairs.good_date, item.pairs.count) == (GOOD, BAD, DATES[17], 3)
    assert item.pairs.ratio == pytest.approx(0.95, abs=0.005) and item.alarm_since == TONIGHT
    assert item.causes[:2] == [f"code {'c' * 12} → {'d' * 12}", f"git commit {'a' * 12} → {'b' * 12}"]
    assert run.plan.trees == {GOOD: "tree", BAD: "tree"}
    assert [trial.index for trial in run.plan.trials] == list(range(len(run.plan.trials)))


def test_what_only_the_night_was_slow_in_is_the_same_in_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    assert run_pairs(run, {}) == 1
    item = verdict(run)
    assert (item.verdict, item.word, item.where, item.alarm_since, item.causes) == (Verdict.SAME, "same", "node", None, [])
    assert item.why is not None and "both commits are changed alike tonight" in item.why
    sentence = pair_sentence(item)
    assert sentence is not None and sentence.startswith("looked 5.1 % slower; 3 pairs of bbbbbbbbbbbb against aaaaaaaaaaaa: same")


@pytest.mark.parametrize(("bad", "said"), [(95.0, (Verdict.SLOWER, "code", None)), (100.0, (Verdict.SAME, None, "node node-1 is"))])
def test_code_that_pairs_prove_slower_is_not_put_down_to_a_node_that_is_as_slow(
    bad: float, said: tuple[Verdict, str | None, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paired_run(tmp_path, monkeypatch, rate=95.0, canary=95.0)
    by_history = next(item for item in run.verdicts().judgements(run.tonight())[0] if (item.name, item.metric) == (CELL, "throughput"))
    assert (by_history.verdict, by_history.where) == (Verdict.SAME, "node") and "and the cell with it" in (by_history.why or "")
    run_pairs(run, {BAD: bad})
    item = verdict(run)
    assert item.pairs is not None and item.pairs.ratio == pytest.approx(bad / 100, abs=0.005)
    assert (item.verdict, item.where, item.why and item.why[:14]) == said


def test_another_environment_is_left_to_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch, facts={"driver": "2"})
    run_pairs(run, {})
    item = verdict(run)
    assert (item.verdict, item.where, item.pairs is not None) == (Verdict.SLOWER, "environment", True)
    assert "canary and past nights judge" in (item.why or "")


def test_a_cell_that_became_faster_is_paired_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch, rate=106.0)
    run_pairs(run, {BAD: 106.0})
    item = verdict(run)
    assert (item.verdict, item.word) == (Verdict.FASTER, "faster")
    assert "faster by 5.8 % (5.2 to 6.4 %), 3 pairs" in (pair_sentence(item) or "")


@pytest.mark.parametrize(("rate", "looked"), [(98.0, True), (99.0, False)])
def test_only_what_looks_changed_is_measured_again(rate: float, looked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch, rate=rate)
    assert (more_pairs(run) is not None) is looked
    assert (verdict(run).looked is not None) is looked


def test_pairs_go_on_from_look_to_look_until_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    assert run_pairs(run, {BAD: 97.0}, noise=0.08) == 3
    assert len(sides(run)) == 16
    item = verdict(run)
    assert item.pairs is not None and (item.verdict, item.pairs.count, item.pairs.why) == (Verdict.UNDECIDED, 8, "that is the most")
    assert more_repeats(run, 4) is None, "pairs that were measured are not followed by repeats"


def test_pairs_of_which_ever_more_fail_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pair whose number is above three the trial of tonight's commit crashes: three pairs count, however many are tried."""
    run = paired_run(tmp_path, monkeypatch)

    def broken(trial: Any) -> dict[str, Any]:
        crashes = trial.commit == BAD and trial.repeat > 3
        return {"outcome": Outcome.CRASHED, "reason": "made up", "summary": {}} if crashes else {}

    for _ in range(100):
        if (plan := more_pairs(run)) is None:
            break
        run.plan = plan
        measure(run, noise=0.05, change=broken)
    assert sides(run).count("A") == 15, "3, 5, 7, ...: two more each time, while they are no more than twice the eight of the last look"
    item = verdict(run)
    assert item.pairs is not None and (item.pairs.count, item.verdict) == (3, Verdict.UNDECIDED)


def test_pairs_of_a_cell_that_are_too_long_leave_their_time_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that looks worst would take 600 s, the next 60 s."""
    run = paired_run(tmp_path, monkeypatch)
    [(item, partners, count)] = run.pairing.wanted(run.judged()[0], run.plan)
    long = item.model_copy(update={"cell": "long"})
    monkeypatch.setattr(run.pairing, "wanted", lambda *_: [(long, partners, count), (item, partners, count)])
    took = {**run.trial_seconds(), ("long", "history"): 100.0}
    monkeypatch.setattr(run, "trial_seconds", lambda: took)
    monkeypatch.setattr(NightRun, "left_s", 60.0)
    run.plan = more_pairs(run) or run.plan
    assert (sides(run), run.pairing.out_of_time) == ("ABBAAB", {"long"})


def test_pairs_that_do_not_fit_the_budget_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    monkeypatch.setattr(NightRun, "left_s", 59.0)  # three pairs of trials that take 10 s each
    assert more_pairs(run) is None
    item = verdict(run)
    assert (item.pairs, item.not_paired, item.verdict) == (None, "there was no time for more", Verdict.SLOWER)
    monkeypatch.setattr(NightRun, "left_s", 60.0)
    assert more_pairs(run) is not None


def test_time_that_ends_between_two_looks_leaves_a_cell_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    plan = more_pairs(run)
    assert plan is not None
    measured_with(run, {BAD: 97.0}, 0.08)(plan)
    monkeypatch.setattr(NightRun, "left_s", 39.0)  # two more pairs take 40 s
    assert more_pairs(run) is None
    item = verdict(run)
    assert item.pairs is not None and (item.verdict, item.pairs.count, item.pairs.why) == (
        Verdict.UNDECIDED,
        3,
        "there was no time for more",
    )


def test_pairs_of_which_a_trial_failed_or_moved_to_another_host_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan

    def broken(trial: Any) -> dict[str, Any]:
        if trial.commit == GOOD and trial.repeat == 1:
            return {"outcome": Outcome.CRASHED, "reason": "made up", "summary": {}}
        return {"environment": {"host": "node-2"}} if trial.commit == BAD and trial.repeat == 2 else {}

    measure(run, {BAD: 95.0}, change=broken)
    plan = more_pairs(run)
    assert plan is not None and len(plan.trials) == len(run.plan.trials) + 4
    run.plan = plan
    measure(run, {BAD: 95.0})
    item = verdict(run)
    assert item.pairs is not None and (item.pairs.count, item.verdict) == (3, Verdict.SLOWER)


WORK = "other processes used 40 % of all cores' time (limit 10 %)"


@pytest.mark.parametrize("side", [GOOD, BAD])
def test_a_pair_with_a_disturbed_side_does_not_count_and_is_measured_again(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third pair's disturbed side runs at half its rate: with it the three pairs would not be clear."""
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan
    measure(run, {BAD: 95.0}, change=lambda trial: slowed(trial) if trial.commit == side and trial.repeat == 3 else {})
    item = verdict(run)
    assert item.pairs is not None and (item.pairs.count, item.pairs.disturbed, item.verdict) == (2, 1, Verdict.UNDECIDED)
    plan = more_pairs(run)
    assert plan is not None and len(plan.trials) == len(run.plan.trials) + 2, "up to the look after three that count"
    run.plan = plan
    measure(run, {BAD: 95.0})
    item = verdict(run)
    assert item.pairs is not None and (item.pairs.count, item.pairs.disturbed, item.verdict) == (3, 1, Verdict.SLOWER)
    assert item.pairs.ratio == pytest.approx(0.95, abs=0.005)
    assert more_pairs(run) is None
    assert (pair_sentence(item) or "").endswith("3 pairs of bbbbbbbbbbbb against aaaaaaaaaaaa, without 1 that other work disturbed")


def slowed(trial: Any) -> dict[str, Any]:
    return {"disturbed": WORK, "summary": {"throughput": 50.0, "peak_memory_bytes": 2**30}}


@pytest.mark.parametrize(("looks", "pairs"), [([3, 5, 8], 15), ([4, 8], 16)])
def test_a_machine_that_stays_busy_is_tried_to_twice_the_last_look_and_history_judges(
    looks: list[int], pairs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.pairing.definition = run.definition.model_copy(update={"pairs": looks})
    for _ in range(100):
        if (plan := more_pairs(run)) is None:
            break
        run.plan = plan
        measure(run, change=slowed)
    assert sides(run).count("A") == pairs, "one look more each time, up to twice the last look"
    item = verdict(run)
    assert (item.pairs, item.not_paired, item.verdict) == (None, f"other work disturbed {pairs} pairs", Verdict.SLOWER)


def test_disturbed_pairs_without_time_for_others_say_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan
    measure(run, change=slowed)
    monkeypatch.setattr(NightRun, "left_s", 59.0)  # three pairs take 60 s
    assert more_pairs(run) is None
    assert verdict(run).not_paired == "other work disturbed 3 pairs, and there was no time for more"


@pytest.mark.parametrize(("undisturbed", "judge"), [(1, "history"), (2, "pairs")])
def test_one_pair_tells_of_no_difference_and_leaves_the_verdict_to_history(
    undisturbed: int, judge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan
    measure(run, noise=0.05, change=lambda trial: slowed(trial) if trial.repeat > undisturbed else {})
    monkeypatch.setattr(NightRun, "left_s", 0.0)
    assert more_pairs(run) is None
    item = verdict(run)
    if judge == "history":
        assert (item.pairs, item.not_paired, item.verdict) == (None, "there was no time for more", Verdict.SLOWER)
    else:
        assert item.pairs is not None and (item.pairs.count, item.pairs.disturbed, item.verdict) == (2, 1, Verdict.UNDECIDED)


def test_what_else_ran_changes_no_loss_of_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan
    measure(run, change=lambda trial: {"disturbed": WORK, "summary": {"throughput": 50.0, "final_loss": 2.0}})
    loss = run.pairing.pairs(verdict(run).model_copy(update={"metric": "final_loss"}), run.plan)
    assert loss is not None and (loss.count, loss.disturbed, loss.verdict) == (3, 0, Verdict.SAME)


def test_a_commit_that_never_ends_ok_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan
    measure(run, change=lambda trial: {"outcome": Outcome.CRASHED, "reason": "made up", "summary": {}} if trial.commit == GOOD else {})
    assert more_pairs(run) is None
    assert (verdict(run).not_paired, verdict(run).verdict) == (
        "of too few did both trials end ok, undisturbed, on one node",
        Verdict.SLOWER,
    )


@pytest.mark.parametrize(
    ("git", "facts", "why"),
    [
        ({"commit": BAD, "dirty": True}, {}, "tonight's code differs from its commit bbbbbbbbbbbb: commit the changes"),
        ({}, {}, "tonight's code is of no commit"),
        ({"commit": GOOD, "dirty": False}, {}, f"tonight's commit aaaaaaaaaaaa is that of {DATES[17]}, which was good"),
    ],
)
def test_what_cannot_be_paired_says_why_and_history_judges(
    git: dict[str, Any], facts: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paired_run(tmp_path, monkeypatch, facts=facts)
    run.plan = run.plan.model_copy(update={"git": git})
    assert more_pairs(run) is None
    item = verdict(run)
    assert (item.verdict, item.pairs, item.not_paired) == (Verdict.SLOWER, None, why)
    assert pair_sentence(item) == f"looked 5.1 % slower, and no pair counts ({why}); its nights and the canary judge"


def test_without_pairs_in_the_definition_nights_are_judged_by_history_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.definition = run.pairing.definition = run.definition.model_copy(update={"pairs": []})
    assert more_pairs(run) is None
    assert (verdict(run).verdict, verdict(run).not_paired) == (Verdict.SLOWER, None)


def test_a_night_that_is_started_again_goes_on_with_its_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run.plan = more_pairs(run) or run.plan
    again = NightRun(run.definition, run.nights, run.night, run.sweep, run.plan)
    again.past = run.past
    measure(again, {BAD: 95.0})  # what was planned runs first
    assert sides(again) == "ABBAAB"
    assert more_pairs(again) is None and verdict(again).verdict is Verdict.SLOWER


def test_report_and_message_say_what_the_pairs_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch)
    run_pairs(run, {BAD: 95.0})
    close_night(run)
    night = run.nights.load(TONIGHT)
    text = message(night, [night], [], [])
    assert headline(night).startswith("REGRESSION: small 2026-10-21: 1 cell worse in throughput")
    assert "  slower by 5.2 % (4.6 to " in text and " %), 3 pairs of bbbbbbbbbbbb against aaaaaaaaaaaa\n" in text
    [item] = night.worse()
    assert item.pairs is not None and change_of(item).startswith("-5.2 % (")
    assert any("3 pairs of bbbbbbbbbbbb against aaaaaaaaaaaa" in row[-1] for row in verdict_table(night).rows)
