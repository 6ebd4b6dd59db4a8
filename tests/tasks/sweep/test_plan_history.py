"""What is known of a plan's trials from sweeps that ran: done, to do, to do again and why, and how long they take."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from experiments.trial import Outcome, Trial, trial_key
from tasks.sweep.plan import TrialState, compare_with_last, expected_seconds, once_more, states
from tasks.sweep.request_text import command_of
from tasks.sweep.store import Plan, Request, Superseded, SweepStore
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

# --- what is done


def test_each_trial_of_a_sweep_is_done_to_do_or_to_do_again_with_a_reason() -> None:
    outcomes = list(Outcome)
    trials = [make_trial(number) for number in range(1, len(outcomes) + 3)]
    why = Superseded(key="f" * 16, by=trials[-1].key, why="code changed (a -> b)")
    plan = make_plan(trials, superseded=[why])
    saved(plan, **{f"t{number}": outcome for number, outcome in enumerate(outcomes, 1)})
    found = states(plan)
    assert [entry.trial for entry in found] == trials
    assert [(entry.state, entry.why) for entry in found] == [
        ("done", "ok"),
        ("done", "does_not_fit"),
        ("done", "diverged"),
        ("done", "unsupported"),
        ("done", "hang"),
        ("done", "crashed"),
        ("again", "ended as infra: made up"),
        ("again", "ended as cancelled: made up"),
        ("to do", None),
        ("again", "code changed (a -> b)"),
    ]


def test_a_superseded_trial_that_ran_since_is_done() -> None:
    trial = make_trial(1)
    plan = make_plan([trial], superseded=[Superseded(key="f" * 16, by=trial.key, why="code changed (a -> b)")])
    saved(plan, t1=Outcome.OK)
    assert [(entry.state, entry.why) for entry in states(plan)] == [("done", "ok")]


OLD = "made_up-20260101-000000-0000"
NEWER = "made_up-20260201-000000-0000"
NEW = "made_up-20260301-000000-0000"


def in_sweep(sweep_id: str, *trials: Trial, **fields: Any) -> Plan:
    """These trials as another sweep has them, under other keys."""
    moved = []
    for trial in trials:
        parts = {**trial.key_parts, "sweep": sweep_id}
        moved.append(trial.model_copy(update={"sweep_id": sweep_id, "key_parts": parts, "key": trial_key(parts)}))
    return make_plan(moved, **fields)


def ended(plan: Plan, *outcomes: Outcome | None) -> SweepStore:
    store = saved(plan)
    for trial, outcome in zip(plan.trials, outcomes, strict=True):
        if outcome is not None:
            store.save_result(make_result(trial, outcome))
    return store


def test_a_new_plan_is_compared_with_the_newest_sweep_of_its_suite() -> None:
    trials = [make_trial(number, key_parts={"code": "1", "configuration": str(number)}) for number in range(1, 6)]
    ended(in_sweep(OLD, *trials), *[Outcome.CRASHED] * 5)
    ended(in_sweep(NEWER, *trials[:4]), Outcome.OK, Outcome.INFRA, None, Outcome.OK)
    changed_code = trials[3].model_copy(update={"key_parts": {**trials[3].key_parts, "code": "2"}})
    found, compared = compare_with_last(in_sweep(NEW, *trials[:3], changed_code, trials[4]))
    assert found == NEWER
    assert [(entry.state, entry.why) for entry in compared] == [
        ("done", "ok"),
        ("again", "ended as infra: made up"),
        ("to do", None),
        ("again", "code changed (1 -> 2)"),
        ("to do", None),
    ]
    assert [entry.trial.sweep_id for entry in compared] == [NEW] * 5


def test_a_repeat_under_another_seed_is_another_trial() -> None:
    one = make_trial(1, key_parts={"code": "1"})
    two = one.model_copy(update={"repeat": 2, "parameters": {**one.parameters, "seed": 1}})
    ended(in_sweep(OLD, one, two), Outcome.OK, Outcome.OK)
    again = two.model_copy(update={"parameters": {**one.parameters, "seed": 2}})
    assert [entry.state for entry in compare_with_last(in_sweep(NEW, one, again))[1]] == ["done", "to do"]


def test_a_trial_that_changed_and_failed_names_the_change() -> None:
    one = make_trial(1, key_parts={"code": "1"})
    ended(in_sweep(OLD, one), Outcome.INFRA)
    now = one.model_copy(update={"key_parts": {"code": "2"}})
    assert [entry.why for entry in compare_with_last(in_sweep(NEW, now))[1]] == ["code changed (1 -> 2)"]


@pytest.mark.parametrize("other", ["repeat", "pool", "parameters", "suite"])
def test_only_the_same_trial_counts_as_done(other: str) -> None:
    one = make_trial(1, key_parts={"code": "1"})
    update = {"repeat": 2, "pool": "local", "parameters": {**one.parameters, "steps": 6}, "suite": "another"}[other]
    ended(in_sweep(OLD, one.model_copy(update={other: update})), Outcome.OK)
    found, compared = compare_with_last(in_sweep(NEW, one))
    assert (found, [entry.state for entry in compared]) == (None, ["to do"])


def test_a_sweep_without_a_cell_of_the_plan_is_passed_over() -> None:
    one, two = make_trial(1, key_parts={"code": "1"}), make_trial(2, key_parts={"code": "1"})
    ended(in_sweep(OLD, one), Outcome.OK)
    ended(in_sweep(NEWER, two), Outcome.OK)
    assert compare_with_last(in_sweep(NEW, one))[0] == OLD


def test_a_plan_is_not_compared_with_itself_and_an_empty_one_is_passed_over() -> None:
    one = make_trial(1, key_parts={"code": "1"})
    plan = in_sweep(NEW, one)
    ended(plan, Outcome.OK)
    saved(make_plan([], sweep_id=NEWER))
    assert compare_with_last(plan) == (None, [TrialState(trial=plan.trials[0], state="to do")])


# --- how long it takes


def test_a_cell_is_expected_to_take_what_it_took_last() -> None:
    one, two, three = (make_trial(number) for number in (1, 2, 3))
    store = ended(in_sweep(OLD, one, two, three), Outcome.OK, Outcome.OK, Outcome.CRASHED)  # 60 s each
    newer = in_sweep(NEWER, one, two)
    store = saved(newer)
    store.save_result(make_result(newer.trials[0], started_at=100.0, finished_at=112.5))
    store.save_result(make_result(newer.trials[1], Outcome.HANG, started_at=100.0, finished_at=900.0))
    plan = in_sweep(NEW, one, two, three, make_trial(4))
    assert expected_seconds(plan) == {one.cell: 12.5, two.cell: 60.0}


def test_expected_endings_that_are_no_ok_tell_how_long_too() -> None:
    one = make_trial(1)
    ended(in_sweep(OLD, one), Outcome.DOES_NOT_FIT)
    assert expected_seconds(in_sweep(NEW, one)) == {one.cell: 60.0}


def test_the_first_repeat_of_a_cell_tells_and_another_fills_in_for_one_that_failed() -> None:
    first, second = make_trial(1), once_more(make_trial(1), 2, 1)
    plan = in_sweep(OLD, first, second)
    store = saved(plan)
    store.save_result(make_result(plan.trials[0], started_at=0.0, finished_at=10.0))
    store.save_result(make_result(plan.trials[1], started_at=0.0, finished_at=20.0))
    assert expected_seconds(in_sweep(NEW, first)) == {first.cell: 10.0}
    store.save_result(make_result(plan.trials[0], Outcome.INFRA))
    assert expected_seconds(in_sweep(NEW, first)) == {first.cell: 20.0}


def test_older_sweeps_are_not_read_once_all_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one = make_trial(1)
    ended(in_sweep(NEWER, one), Outcome.OK)
    older = SweepStore(OLD)
    older.dir.mkdir(parents=True)
    (older.dir / "plan.json").write_text("damaged")
    assert expected_seconds(in_sweep(NEW, one)) == {one.cell: 60.0}


# --- asking for the same again


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, []),
        ({"pools": ["cpu", "a100"]}, ["--pool", "cpu", "--pool", "a100"]),
        ({"set": {"steps": 5, "compile": False, "dataset": None}}, ["--set", "steps=5", "--set", "compile=false", "--set", "dataset=null"]),
        ({"set": {"dataset": "/a b"}}, ["--set", "dataset=/a b"]),
        (
            {"only": {"precision": ["bf16", "fp32"], "fused": [True]}},
            ["--only", "precision=bf16", "--only", "precision=fp32", "--only", "fused=true"],
        ),
        ({"repeats": 3}, ["--repeats", "3"]),
        ({"pool_wait_s": 0.0}, ["--pool-wait", "0"]),
        ({"pool_wait_s": 90.5}, ["--pool-wait", "90.5"]),
        ({"pools": ["cpu"], "repeats": 1, "pool_wait_s": 60.0}, ["--pool", "cpu", "--repeats", "1", "--pool-wait", "60"]),
    ],
)
def test_the_command_keeps_everything_that_was_asked_for(request_: dict[str, Any], words: list[str]) -> None:
    command = command_of(Request(suite="a suite.yaml", profile="auto", **request_), "smoke")
    assert shlex.split(command) == ["sweep", "run", "a suite.yaml", "--profile", "smoke", *words]
