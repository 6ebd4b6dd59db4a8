"""A night looks for the commit itself: within its time, once a change, going on where it was; and says what it found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.stats.verdict import Verdict
from tasks.nightly import bisect, night_bisection
from tasks.nightly.bisect import BisectError
from tasks.nightly.close import close_night
from tasks.nightly.night_bisection import bisect_night
from tasks.nightly.night_run import NightRun
from tasks.nightly.pair_trials import BISECT, SIDE
from tasks.nightly.repeats import more_pairs
from tasks.nightly.report import headline, message
from tests.tasks.nightly.night_support import DATES, TONIGHT
from tests.tasks.nightly.pair_support import BAD, CELL, GOOD, measured_with, paired_run

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


def test_nothing_is_looked_for_where_nothing_got_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paired_run(tmp_path, monkeypatch, rate=92.0)
    plan = more_pairs(run)
    assert plan is not None
    measured_with(run, {})(plan)
    assert all(item.verdict is not Verdict.SLOWER for item in run.judged()[0] if item.role == "history")
    bisect_night(run, lambda plan: pytest.fail("nothing got worse"), lambda: False)
    assert run.night.bisections == []
