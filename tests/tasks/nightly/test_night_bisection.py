"""A night looks for the commit itself: within its time, once a change, going on where it was; and says what it found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.stats.verdict import Verdict
from experiments.trial import Trial
from tasks.nightly import bisect, night_bisection
from tasks.nightly.bisect import BisectError
from tasks.nightly.close import close_night
from tasks.nightly.commit_records import FoundCommit
from tasks.nightly.history import History
from tasks.nightly.night_bisection import bisect_night
from tasks.nightly.night_run import NightRun
from tasks.nightly.pair_trials import BISECT, SIDE
from tasks.nightly.repeats import more_pairs
from tasks.nightly.report import headline, message
from tasks.sweep.store import Plan
from tests.tasks.nightly.night_support import DATES, TONIGHT, said
from tests.tasks.nightly.pair_support import BAD, CELL, GOOD, measure, measured_with, paired_run

COMMITS = [f"{number:x}" * 40 for number in (1, 2, 3, 4)] + [BAD]
RATES = {GOOD: 100.0, **dict.fromkeys(COMMITS[:2], 100.0), **dict.fromkeys(COMMITS[2:], 92.0)}  # the third one is the first bad


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NightRun:
    """A night whose pairs have confirmed a slow-down, five commits after the good one."""
    run = paired_run(tmp_path, monkeypatch, rate=92.0)
    monkeypatch.setattr(bisect, "commits_between", lambda good, bad: (good, COMMITS))
    monkeypatch.setattr(bisect, "subject", lambda commit: f"subject of {commit[0]}")
    monkeypatch.setattr(night_bisection, "suspects", lambda commits, good, trial: list(commits))
    plan = more_pairs(run)
    assert plan is not None
    measured_with(run, RATES)(plan)
    return run


def searched(run: NightRun) -> list[str]:
    """The commits of the bisection's trials, in order, by their first digit."""
    return [trial.commit[0] for trial in run.plan.trials if trial.labels.get(SIDE) == BISECT and trial.commit]


def test_the_first_bad_commit_is_found_and_told(run: NightRun) -> None:
    bisect_night(run, measured_with(run, RATES), lambda: False)
    [found] = run.night.bisections
    assert (found.commit, found.name, found.metric, found.on) == (COMMITS[2], CELL, "throughput", TONIGHT)
    assert found.sentence == "333333333333 is the first bad commit: subject of 3"
    assert searched(run) == list("a22aa2" + "a33aa3"), "GOOD and a commit by turns; GOOD against BAD is known from the pairs"
    assert found.trials == 12
    close_night(run)
    night = run.nights.load(TONIGHT)
    assert night.bisections == [found]
    assert "; first bad commit 333333333333" in headline(night)
    assert "  commit: 333333333333 is the first bad commit: subject of 3\n" in message(night, [night], [], [])


def test_an_interrupted_bisection_goes_on_with_what_it_measured(run: NightRun) -> None:
    stop = SimpleNamespace(after=5)

    def stopped() -> bool:
        stop.after -= 1
        return stop.after < 0

    bisect_night(run, measured_with(run, RATES), stopped)
    assert run.night.bisections == [] and 0 < len(searched(run)) < 12
    measured = len(run.plan.trials)
    again = NightRun(run.definition, run.nights, run.night, run.sweep, run.plan)
    again.past = run.past
    bisect_night(again, measured_with(again, RATES), lambda: False)
    assert again.night.bisections[0].commit == COMMITS[2]
    assert searched(again) == list("a22aa2" + "a33aa3") and len(again.plan.trials) > measured


@pytest.mark.parametrize("side", [GOOD, COMMITS[1]])
def test_a_disturbed_pair_of_a_bisection_does_not_count(run: NightRun, side: str) -> None:
    """The first pair of the second commit: its disturbed side runs at a tenth of its rate."""

    def slowed(trial: Trial) -> dict[str, Any]:
        mine = trial.labels.get(SIDE) == BISECT and (trial.commit, trial.repeat) == (side, 1)
        return {"disturbed": "made up", "summary": {"throughput": 10.0}} if mine else {}

    def go_on(plan: Plan) -> None:
        run.plan = plan
        measure(run, RATES, change=slowed)

    bisect_night(run, go_on, lambda: False)
    [found] = run.night.bisections
    assert (found.commit, found.trials) == (COMMITS[2], 14)
    assert searched(run) == list("a2" + "a22aa2" + "a33aa3")


def test_the_time_of_a_bisection_is_the_definitions_and_the_nights(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(night_bisection, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(NightRun, "left_s", 1000.0)
    run.definition = run.definition.model_copy(update={"bisect_budget": "85s"})
    go_on = measured_with(run, RATES)

    def measure(plan: object) -> None:
        clock.now += 10.0  # what a trial takes
        go_on(plan)  # type: ignore[arg-type]

    bisect_night(run, measure, lambda: False)
    [found] = run.night.bisections
    assert (found.commit, found.between, found.trials) == (None, (COMMITS[1], BAD), 8)
    assert "There was no time to go on: the commit is one of 3 in 222222222222..bbbbbbbbbbbb" in found.sentence
    assert "commit: There was no time" in message(run.night.model_copy(update={"judgements": run.judged()[0]}), [], [], [])


def test_one_commit_that_touches_the_cell_needs_no_trial(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_bisection, "suspects", lambda commits, good, trial: [COMMITS[2]])
    bisect_night(run, lambda plan: pytest.fail("nothing is to be measured"), lambda: False)
    [found] = run.night.bisections
    assert (found.commit, found.trials) == (COMMITS[2], 0)
    assert found.sentence.startswith("333333333333 is the first bad commit; of 5 commits only this one changes what the cell runs")


def test_a_commit_that_cannot_run_ends_the_bisection_and_not_the_night(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(good: str, bad: str) -> None:
        raise BisectError(f"{good[:4]} is no ancestor of {bad[:4]}")

    monkeypatch.setattr(bisect, "commits_between", none)
    bisect_night(run, measured_with(run, RATES), lambda: False)
    [found] = run.night.bisections
    assert found.commit is None and found.sentence == "The bisection of aaaaaaaaaaaa..bbbbbbbbbbbb ended: aaaa is no ancestor of bbbb"


def test_what_an_earlier_night_found_is_not_looked_for_again(run: NightRun) -> None:
    bisect_night(run, measured_with(run, RATES), lambda: False)
    [found] = run.night.bisections
    earlier = run.night.model_copy(
        update={
            "date": DATES[-1],
            "bisections": [found.model_copy(update={"on": DATES[-1]})],
            "judgements": run.judged()[0],
            "closed_at": 1.0,
        }
    )
    run.nights.folder(DATES[-1]).mkdir(parents=True)
    run.nights.save(earlier)
    before = len(run.plan.trials)
    bisect_night(run, lambda plan: pytest.fail("it is known"), lambda: False)
    assert [one.on for one in run.night.bisections] == [DATES[-1]] and len(run.plan.trials) == before


def test_what_was_found_before_the_alarm_is_another_change(run: NightRun) -> None:
    """An alarm that was over since: the same good commit and metric, and a commit that was found."""
    bisect_night(run, measured_with(run, RATES), lambda: False)
    [found] = run.night.bisections
    same = [item.model_copy(update={"verdict": Verdict.SAME, "alarm_since": None}) for item in run.judged()[0]]
    old = found.model_copy(update={"on": DATES[-1], "commit": COMMITS[0]})
    run.nights.folder(DATES[-1]).mkdir(parents=True)
    run.nights.save(run.night.model_copy(update={"date": DATES[-1], "bisections": [old], "judgements": same, "closed_at": 1.0}))
    run.save(bisections=[])
    bisect_night(run, measured_with(run, RATES), lambda: False)
    assert [(one.on, one.commit) for one in run.night.bisections] == [(TONIGHT, COMMITS[2])]


@pytest.mark.parametrize(("left_s", "trials"), [(-1.0, 0), (15.0, 0), (20.0, 2)])
def test_no_pair_begins_that_what_is_left_of_the_night_has_no_time_for(
    run: NightRun, monkeypatch: pytest.MonkeyPatch, left_s: float, trials: int
) -> None:
    """A pair takes 20 s; the definition's own time for it is 30 minutes."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(night_bisection, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(NightRun, "left_s", left_s)
    assert run.definition.bisect_budget_s == 1800.0
    go_on = measured_with(run, RATES)

    def measure(plan: Plan) -> None:
        clock.now += 10.0
        go_on(plan)

    bisect_night(run, measure, lambda: False)
    assert [(one.commit, one.trials) for one in run.night.bisections] == [(None, trials)]


def test_what_a_bisection_waits_for_others_is_none_of_its_time(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(night_bisection, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(NightRun, "left_s", 20.0)  # one pair
    run.waits = SimpleNamespace(seconds=700.0)  # type: ignore[assignment]
    clock.now = 700.0
    go_on = measured_with(run, RATES)

    def measure(plan: Plan) -> None:
        clock.now += 10.0 + 300.0
        run.waits = SimpleNamespace(seconds=run.waits.seconds + 300.0)  # type: ignore[assignment]
        go_on(plan)

    bisect_night(run, measure, lambda: False)
    assert [(one.commit, one.trials) for one in run.night.bisections] == [(None, 2)]
    monkeypatch.setattr(NightRun, "left_s", 300.0)
    run.save(bisections=[])
    bisect_night(run, measure, lambda: False)
    assert [(one.commit, one.trials) for one in run.night.bisections] == [(COMMITS[2], 12)]


def test_what_crept_is_of_many_commits_and_is_not_bisected(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    items, nodes = run.judged()
    assert [item.name for item in items if item.verdict is Verdict.SLOWER and item.role == "history"] == [CELL]
    crept = [item.model_copy(update={"crept": True}) for item in items]
    monkeypatch.setattr(NightRun, "judged", lambda self: (crept, nodes))
    bisect_night(run, lambda plan: pytest.fail("there is no one commit"), lambda: False)
    assert run.night.bisections == []


def test_a_later_night_of_an_alarm_repeats_what_was_found_though_each_night_has_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm began two nights ago; the good commit is that of the third night before it."""
    run = paired_run(tmp_path, monkeypatch, rate=92.0)
    monkeypatch.setattr(bisect, "commits_between", lambda good, bad: (good, COMMITS))
    monkeypatch.setattr(bisect, "subject", lambda commit: f"subject of {commit[0]}")
    monkeypatch.setattr(night_bisection, "suspects", lambda commits, good, trial: list(commits))
    commit_of = {date: f"{number:02d}" * 20 for number, date in enumerate(DATES, 1)}
    run.past = with_commits(run.past, commit_of)
    cell = next(entry for entry in run.night.cells if entry.name == CELL and entry.role == "history")
    for date in DATES[-2:]:
        run.nights.folder(date).mkdir(parents=True)
        slower = said(date, Verdict.SLOWER).judgements[0].model_copy(update={"cell": cell.cell, "name": CELL, "alarm_since": DATES[-2]})
        found = FoundCommit(
            cell=cell.cell,
            name=CELL,
            metric="throughput",
            good=commit_of[DATES[-5]],
            bad=commit_of[DATES[-2]],
            commit=COMMITS[2],
            sentence="found",
            on=DATES[-2],
        )
        run.nights.save(run.night.model_copy(update={"date": date, "judgements": [slower], "bisections": [found], "closed_at": 1.0}))
    plan = more_pairs(run)
    assert plan is not None
    measured_with(run, dict.fromkeys(commit_of.values(), 100.0) | {BAD: 92.0})(plan)
    [item] = [item for item in run.judged()[0] if item.role == "history" and item.verdict is Verdict.SLOWER]
    assert item.pairs is not None and (item.pairs.good, item.pairs.good_date) == (commit_of[DATES[-5]], DATES[-5])
    bisect_night(run, lambda plan: pytest.fail("it is known"), lambda: False)
    assert [(one.commit, one.on) for one in run.night.bisections] == [(COMMITS[2], DATES[-2])]


def with_commits(history: History, commit_of: dict[str, str]) -> History:
    """The same measurements, each of its date's commit."""
    found = History()
    found.add(
        replace(trial, facts={**trial.facts, "git_commit": commit_of[trial.date]})
        for dates in history.cells.values()
        for trials in dates.values()
        for trial in trials
    )
    return found


def test_nothing_is_looked_for_where_nothing_got_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch, rate=92.0)
    plan = more_pairs(run)
    assert plan is not None
    measured_with(run, {})(plan)
    assert all(item.verdict is not Verdict.SLOWER for item in run.judged()[0] if item.role == "history")
    bisect_night(run, lambda plan: pytest.fail("nothing got worse"), lambda: False)
    assert run.night.bisections == []
