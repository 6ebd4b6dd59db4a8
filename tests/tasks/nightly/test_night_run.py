"""The steps between trials: more repeats within the budget, closing a night, nights that nobody finished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.regression.definition import NightFile, load_night
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome, TrialResult
from tasks.nightly import close, night_run
from tasks.nightly.close import close_night, close_unfinished
from tasks.nightly.history import History
from tasks.nightly.night_run import NightRun, start_or_resume
from tasks.nightly.repeats import more_repeats
from tasks.nightly.store import AA_CONTROL, CellVerdict, NightCode, NightStore
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import SweepStore
from tests.cli_support import ROOT
from tests.tasks.nightly.night_support import DATES, DEFINITION, TONIGHT, night, now, past, trials


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NightRun:
    """Night `small` with a plan of real trials, none of which ran; its history is made up for its own cells."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(ROOT / "tests" / "workloads_for_tests"))
    definition = load_night("small")
    nights = NightStore(definition.nightly)
    claimed, _ = nights.claim(TONIGHT, 600.0)
    return start_or_resume(definition, nights, claimed, SweepStore(claimed.sweep_id), [])


def measured(run: NightRun, monkeypatch: pytest.MonkeyPatch, before: History, tonight: History, seconds: float = 10.0) -> None:
    """As if every trial of the plan had run for so long, one after the other, with these values."""
    for place, trial in enumerate(run.plan.trials):
        began = place * seconds
        result = TrialResult(key=trial.key, attempt=1, outcome=Outcome.OK, started_at=began, finished_at=began + seconds)
        run.sweep.trial_dir(trial.key).mkdir(parents=True, exist_ok=True)
        run.sweep.save_result(result)
    monkeypatch.setattr(night_run, "tonight", lambda *_: tonight)
    run.past = before


def noisy(run: NightRun) -> tuple[History, History]:
    """One cell that stays undecided, and a calm canary beside it."""
    before, tonight = History(), History()
    for entry in run.night.cells:
        if entry.role not in ("history", "canary"):
            continue
        noise = 0.04 if entry.name.startswith("two · cpu · none") else 0.002
        for history, dates, rate, seed in ((before, DATES, 100.0, 0), (tonight, [TONIGHT], 100.0 * (0.95 if noise > 0.01 else 1), 3)):
            made = trials(entry.cell, dates, role=entry.role, rate=rate, noise=noise, seed=seed)
            history.add(replace(trial, cell=entry.cell) for trial in made)
    return before, tonight


def test_a_night_needs_its_past_before_its_verdicts(run: NightRun) -> None:
    with pytest.raises(RuntimeError, match="the past nights were not read yet"):
        run.verdicts()


def test_a_night_that_is_started_again_keeps_its_plan(run: NightRun) -> None:
    again = start_or_resume(run.definition, run.nights, run.nights.load(TONIGHT), run.sweep, [])
    assert [trial.key for trial in again.plan.trials] == [trial.key for trial in run.plan.trials]
    assert again.night.cells == run.night.cells != []


def test_a_night_records_its_commit_and_branch_also_when_it_is_gone_on_with(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    for branch, commit in (("topic/a", "a" * 40), ("main", "b" * 40)):
        for name, value in (("SWEEPBENCH_GIT_BRANCH", branch), ("SWEEPBENCH_GIT_COMMIT", commit), ("SWEEPBENCH_GIT_DIRTY", "1")):
            monkeypatch.setenv(name, value)
        start_or_resume(run.definition, run.nights, run.nights.load(TONIGHT), run.sweep, [])
        assert run.nights.load(TONIGHT).code == NightCode(commit=commit, dirty=True, branch=branch)


def test_undecided_cells_and_their_canary_get_more_repeats(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(run, monkeypatch, *noisy(run))
    plan = more_repeats(run, 4)
    assert plan is not None
    added = plan.trials[len(run.plan.trials) :]
    assert [(trial.repeat, trial.labels["night.role"]) for trial in added] == [(3, "canary"), (3, "history"), (4, "canary"), (4, "history")]
    assert {trial.axes["fault"] for trial in added if trial.labels["night.role"] == "history"} == {"none"}


def test_without_time_the_cells_that_go_without_are_named(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(run, monkeypatch, *noisy(run))
    monkeypatch.setattr(NightRun, "left_s", 39.0)  # canary and cell take 10 s each, two more repeats of both 40 s
    assert more_repeats(run, 4) is None
    assert run.nights.load(TONIGHT).remarks == ["No time for more repeats of two · cpu · none · steps 30: 40 s wanted, 39 s left."]
    monkeypatch.setattr(NightRun, "left_s", 40.0)
    assert more_repeats(run, 4) is not None


def test_the_budget_runs_from_the_start_of_the_run(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1000.0, 1250.0, 1700.0])
    monkeypatch.setattr(night_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    again = NightRun(run.definition, run.nights, run.night, run.sweep, run.plan)
    assert (again.left_s, again.left_s) == (350.0, -100.0)


def test_what_the_night_waited_for_others_is_none_of_its_budget(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(night_run, "time", SimpleNamespace(monotonic=lambda: clock.now))
    again = NightRun(run.definition, run.nights, run.night, run.sweep, run.plan)
    again.waits = SlotWaits(lambda: clock.now)
    again.waits.waits("a", ["sweep another"])
    clock.now += 5000.0
    assert again.left_s == run.night.budget_s
    again.waits.runs("a")
    clock.now += 10.0
    assert again.left_s == run.night.budget_s - 10.0


def test_an_interrupted_night_has_what_its_trials_left_of_the_budget(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(run, monkeypatch, History(), History(), seconds=59.0)
    monkeypatch.setattr(night_run, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    assert len(run.plan.trials) == 10
    again = start_or_resume(run.definition, run.nights, run.nights.load(TONIGHT), run.sweep, [])
    assert again.left_s == pytest.approx(10.0)


def test_what_there_was_no_time_for_is_said_again_only_where_there_is_none_again(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(run, monkeypatch, *noisy(run))
    monkeypatch.setattr(NightRun, "left_s", 39.0)
    assert more_repeats(run, 4) is None
    run.remark("Night 2026-10-20 was interrupted and never judged.")
    for left_s, said in ((38.0, ["No time for more repeats of two · cpu · none · steps 30: 40 s wanted, 38 s left."]), (40.0, [])):
        again = start_or_resume(run.definition, run.nights, run.nights.load(TONIGHT), run.sweep, [])
        again.past = run.past
        monkeypatch.setattr(NightRun, "left_s", left_s)
        assert (more_repeats(again, 4) is None) == bool(said)
        assert again.nights.load(TONIGHT).remarks == ["Night 2026-10-20 was interrupted and never judged.", *said]


def test_where_nothing_is_undecided_there_is_nothing_to_repeat(run: NightRun, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(run, monkeypatch, History(), History())
    assert more_repeats(run, 4) is None
    assert run.night.remarks == []


# --- closing

HELD = "nightly-made-up-20261003-020000-0000"


def made_up(tmp_path: Path, definition: NightFile, monkeypatch: pytest.MonkeyPatch, tonight: History, earlier: int = 0) -> NightRun:
    """Night `made-up` with so many earlier nights on which `one` was slower."""
    monkeypatch.setattr(night_run, "tonight", lambda *_: tonight)
    nights = NightStore("made-up", tmp_path)
    slower = CellVerdict(
        cell="id-one", name="one", role="history", metric="throughput", verdict=Verdict.SLOWER, word="slower", minimum=0.03, repeats=3
    )
    for date in DATES[len(DATES) - earlier :]:
        nights.folder(date).mkdir(parents=True)
        nights.save(night(date=date, judgements=[slower], closed_at=1.0))
    nights.folder(TONIGHT).mkdir(parents=True)

    class NoTrials:
        trials: tuple[()] = ()

    run = NightRun(definition, nights, night(), SweepStore("nightly-made-up-20261021-020000-0000", tmp_path), NoTrials())  # type: ignore[arg-type]
    run.past = past()
    return run


def test_a_closed_night_has_its_verdicts_its_controls_and_what_was_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close_night(made_up(tmp_path, DEFINITION, monkeypatch, now({"one": 92.0})))
    done = NightStore("made-up", tmp_path).load(TONIGHT)
    assert done.closed and [item.name for item in done.worse()] == ["one"]
    assert done.probes == {AA_CONTROL: Verdict.SAME, "injected": Verdict.SLOWER}
    assert [(entry.name, entry.why) for entry in done.missed] == [("two", "not planned")]
    assert [node.verdict for node in done.nodes] == [Verdict.SAME]


@pytest.mark.parametrize(("earlier", "since"), [(3, None), (4, DATES[16])])
def test_a_change_that_lasted_long_enough_is_accepted_from_its_first_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: int, since: str | None
) -> None:
    """Five nights in a row, tonight among them."""
    close_night(made_up(tmp_path, DEFINITION, monkeypatch, now({"one": 92.0, "two": 100.0}), earlier))
    accepted = NightStore("made-up", tmp_path).changes()
    assert [(change.cell, change.since, change.accepted_on, change.by) for change in accepted] == (
        [("id-one", since, TONIGHT, "nights")] if since else []
    )
    assert [change.note for change in accepted] == ["held for 5 nights"][: len(accepted)]


def test_a_night_that_is_closed_keeps_its_verdicts_and_accepts_what_it_had_not_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow that closed it was killed before it accepted the change; by now the sweep says something else."""
    run = made_up(tmp_path, DEFINITION, monkeypatch, now({"one": 92.0, "two": 100.0}), 4)
    with monkeypatch.context() as patch:
        patch.setattr(close, "accepts_itself", lambda *_: None)
        close_night(run)
    closed = run.nights.load(TONIGHT)
    monkeypatch.setattr(night_run, "tonight", lambda *_: now({"one": 100.0, "two": 100.0}))
    for _ in range(2):
        close_night(run)
        assert run.nights.load(TONIGHT) == closed
        assert [(change.cell, change.since, change.accepted_on) for change in run.nights.changes()] == [("id-one", DATES[16], TONIGHT)]


def test_earlier_nights_that_nobody_finished_are_closed_with_what_they_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    nights = NightStore("made-up")
    one = CellVerdict(cell="id-one", name="one", role="history", metric="m", verdict=Verdict.SAME, word="same", minimum=0.03, repeats=3)
    for date, changes in (
        (DATES[0], {"closed_at": 1.0}),
        (DATES[1], {"judgements": [one]}),
        (DATES[2], {"sweep_id": HELD}),
        (DATES[3], {"closed_at": 1.0, "told_at": None}),
        (TONIGHT, {}),
    ):
        nights.folder(date).mkdir(parents=True)
        nights.save(night(date=date, **changes))
    with SweepStore(HELD).lease():
        assert close_unfinished(nights, TONIGHT) == [
            f"Night {DATES[1]} was interrupted and never judged.",
            f"Night {DATES[3]} was judged and not told: `sweep nightly made-up --date {DATES[3]}` tells it.",
        ]
    closed = nights.load(DATES[1])
    assert closed.closed_at == closed.told_at is not None and [(entry.name, entry.why) for entry in closed.missed] == [
        ("two", "the night was interrupted")
    ]
    assert [item.name for item in closed.judgements] == ["one"]
    assert nights.load(DATES[0]).missed == nights.load(DATES[3]).missed == [] and not nights.load(DATES[3]).over
    assert not nights.load(DATES[2]).closed and not nights.load(TONIGHT).closed
