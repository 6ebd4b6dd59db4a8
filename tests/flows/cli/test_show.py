"""What the listings print, as tables and as data."""

from __future__ import annotations

import re
from contextlib import nullcontext
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.trial import Outcome
from flows.cli import options, show_catalog, show_plan, show_sweeps
from flows.cli.commands import app
from tasks.analysis.held_files import keep_held
from tasks.analysis.results import load_sweep
from tasks.sweep.plan import TrialState
from tasks.sweep.request_text import command_of
from tasks.sweep.store import Request, SweepStore
from tests.tasks.held_support import write_held
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_result, make_suite, make_trial, saved


class Page(Console):
    """A console whose lines can be read: each as its columns."""

    def __init__(self) -> None:
        super().__init__(file=StringIO(), width=200)

    @property
    def lines(self) -> list[list[str]]:
        return [re.split(r"  +", line.strip()) for line in self.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def states(*kinds: tuple[str, str | None]) -> Any:
    plan = make_plan([make_trial(number, axes={"pool": "cpu", "clip": None, "fused": True}) for number in range(1, len(kinds) + 1)])
    found = [TrialState(trial=trial, state=state, why=why) for trial, (state, why) in zip(plan.trials, kinds, strict=True)]  # type: ignore[arg-type]
    return plan, found


# --- a plan


def test_a_plan_is_its_matrix_with_what_is_done_and_why_the_rest_runs() -> None:
    plan, found = states(("done", "ok"), ("again", "code changed"), ("to do", None))
    page, expected = Page(), {trial.cell: 65.0 for trial in plan.trials}
    show_plan.print_plan(page, plan, found, expected, "other-sweep", auto=True)
    assert page.lines == [
        ["pool", "clip", "fused", "repeat", "state", "expected"],
        ["1", "cpu", "true", "1", "done (ok)", "1:05"],
        ["2", "cpu", "true", "1", "again (code changed)", "1:05"],
        ["3", "cpu", "true", "1", "to do", "1:05"],
        ["made_up, profile full (chosen by auto): 3 cells, 3 trials"],
        ["against other-sweep: 1 done, 1 again, 1 to do. `sweep run` measures all anew; `sweep resume other-sweep` goes on"],
        ["expected: 3:15"],
    ]
    plan, found = states(("done", "ok"), ("done", "ok"))
    page = Page()
    show_plan.print_plan(page, plan, found, {}, "other-sweep", auto=False)
    assert page.lines[-2] == ["against other-sweep: 2 done. `sweep run` measures all anew"], "a resume would have nothing to do"


def test_a_plan_says_which_trials_are_references_and_in_which_precision() -> None:
    """By its axes a reference looks like a repeat of the cell whose reference it is."""
    kinds = [(1, False, "bf16"), (2, True, "tf32")]
    trials = [make_trial(n, reference=told, axes={"rung": "fast"}, parameters={"precision": words}) for n, told, words in kinds]
    found, page = [TrialState(trial=trial, state="to do") for trial in trials], Page()
    show_plan.print_plan(page, make_plan(trials), found, {}, None, auto=False)
    assert page.lines[:4] == [
        ["rung", "reference", "repeat", "state", "expected"],
        ["1", "fast", "1", "to do"],
        ["2", "fast", "tf32", "1", "to do"],
        ["made_up, profile full: 2 cells, 2 trials, 1 of them of references: for loss parity alone"],
    ]
    entries = show_plan.plan_json(make_plan(trials), found, {}, None, {})["trials"]
    assert [entry["reference"] for entry in entries] == [False, True]


@pytest.mark.parametrize(("against", "seconds"), [(None, 30.0), ("other-sweep", 30.0), (SWEEP_ID, 20.0)])
def test_expected_seconds_are_those_of_the_slowest_pool_and_of_a_sweeps_rest(against: str | None, seconds: float) -> None:
    trials = [make_trial(1), make_trial(2), make_trial(3), make_trial(4, pool="gpu")]
    found = [TrialState(trial=trial, state="done" if trial is trials[0] else "to do") for trial in trials]
    plan, expected = make_plan(trials), {trial.cell: 10.0 for trial in trials}
    told = show_plan.plan_json(plan, found, expected, against, {"a100": ("is not configured", "set it")})
    assert (told["suite"], told["compared_with"], told["expected_s"]) == ("made_up", against, seconds)
    assert told["pool_problems"] == {"a100": "is not configured; set it"}
    assert [(entry["state"], entry["expected_s"]) for entry in told["trials"]] == [("done", 10.0)] + [("to do", 10.0)] * 3


def test_without_history_the_expected_time_is_unknown() -> None:
    plan, found = states(("to do", None))
    assert show_plan.plan_json(plan, found, {}, None, {})["expected_s"] is None
    page = Page()
    show_plan.print_plan(page, plan, found, {}, None, auto=False)
    assert page.lines[-2:] == [["made_up, profile full: 1 cell, 1 trial"], ["expected: unknown, no history yet for some cells"]]


def test_a_plan_says_which_pools_cannot_run_it_from_here() -> None:
    page = Page()
    show_plan.print_lacking(page, {"a100": ("is not configured", "set [X] to a URL"), "cuda": ("cannot run trials: no driver", "get one")})
    assert page.lines == [["pool a100: is not configured; set [X] to a URL"], ["pool cuda: cannot run trials: no driver; get one"]]


def test_a_resume_says_why_each_trial_runs_again() -> None:
    plan, found = states(("done", "ok"), ("again", "ended as infra: gone"), ("to do", None))
    page = Page()
    show_plan.print_why_again(page, found)
    assert page.lines == [["1 of 3 trials are done"], [f"again: {plan.trials[1].name}: ended as infra: gone"], ["to do: 1"]]


# --- sweeps


@pytest.mark.parametrize(
    ("ended", "held", "state"),
    [
        ({"t1": Outcome.OK}, False, "incomplete"),
        ({"t1": Outcome.OK, "t2": Outcome.CANCELLED}, False, "incomplete"),
        ({"t1": Outcome.OK, "t2": Outcome.CRASHED}, False, "complete"),
        ({"t1": Outcome.OK}, True, "running"),
    ],
)
def test_a_sweep_is_running_complete_or_not(ended: dict[str, Outcome], held: bool, state: str) -> None:
    store = saved(make_plan([make_trial(1), make_trial(2)]), **ended)
    if held:
        with store.lease():
            (row,) = show_sweeps.sweep_rows()
    else:
        (row,) = show_sweeps.sweep_rows()
    assert (row["sweep_id"], row["state"], row["trials"]) == (SWEEP_ID, state, 2)
    assert sum(row["outcomes"].values()) == 2 and row["outcomes"]["ok"] == 1


def test_a_sweep_that_cannot_be_read_hides_no_other() -> None:
    saved(make_plan([make_trial(1)]), t1=Outcome.OK)
    other = SweepStore("other-20250101-000000-0000")
    other.dir.mkdir(parents=True)
    (other.dir / "plan.json").write_text("{")
    rows = show_sweeps.sweep_rows()
    assert [(row["sweep_id"], row["state"]) for row in rows] == [(SWEEP_ID, "complete"), (other.sweep_id, "unreadable")]
    page = Page()
    show_sweeps.print_sweeps(page, rows)
    assert page.lines[1] == [SWEEP_ID, "full", "2023-11-14 22:13", "complete", "1", "1 ok"]
    assert page.lines[2][:2] == [other.sweep_id, "unreadable"]


OVERRIDES = {"set": {"steps": 50, "dataset": None}, "only": {"width": [64, 256]}, "pools": ["cpu"], "repeats": 3}


@pytest.mark.parametrize(("width", "short"), [(160, "steps=50 dataset=null width=64,256 pool…"), (159, "steps=50 dataset=nu…")])
def test_two_sweeps_with_other_overrides_are_told_apart(width: int, short: str) -> None:
    request = Request(suite="made_up", **OVERRIDES)
    saved(make_plan([make_trial(1)], request=request, command=command_of(request, "full")), t1=Outcome.OK)
    plain = "made_up-20250101-000000-0000"
    saved(make_plan([make_trial(1)], sweep_id=plain), t1=Outcome.OK)
    rows = show_sweeps.sweep_rows()
    assert [{name: row[name] for name in OVERRIDES} for row in rows] == [OVERRIDES, {"set": {}, "only": {}, "pools": [], "repeats": None}]
    command = "sweep run made_up --profile full --pool cpu --set steps=50 --set dataset=null --only width=64 --only width=256 --repeats 3"
    assert [row["command"] for row in rows] == [command, "sweep run made_up"]
    page = Page()
    page.width = width
    show_sweeps.print_sweeps(page, rows)
    wide = ["started (UTC)", "state", "trials", "outcomes", "measured"] if width == 160 else ["state", "outcomes"]
    assert page.lines[0] == ["sweep", "profile", "overrides", *wide]
    assert page.lines[1][:3] == [SWEEP_ID, "full", short] and page.lines[2][:2] == [plain, "full"] and "steps" not in page.lines[2]
    store, page = SweepStore(SWEEP_ID), Page()
    show_sweeps.print_sweep(page, store)
    assert page.lines[-2:] == [["command:", command], ["MLflow UI: sweep ui"]]
    told = show_sweeps.sweep_json(store)
    assert {name: told[name] for name in OVERRIDES} == OVERRIDES and told["command"] == command


@pytest.mark.parametrize(
    ("ended", "held", "said"),
    [
        ({"t1": Outcome.OK}, False, True),
        ({"t1": Outcome.OK, "t2": Outcome.CANCELLED}, False, True),
        ({"t1": Outcome.OK, "t2": Outcome.CRASHED}, False, False),
        ({"t1": Outcome.OK}, True, False),
    ],
)
def test_a_sweep_that_has_not_ended_says_what_goes_on_with_it(
    monkeypatch: pytest.MonkeyPatch, ended: dict[str, Outcome], held: bool, said: bool
) -> None:
    store, page = saved(make_plan([make_trial(1), make_trial(2)]), **ended), Page()
    without_step(monkeypatch, store)
    with store.lease() if held else nullcontext():
        show_sweeps.print_sweep(page, store)
    assert [line for line in page.lines if "sweep resume" in line[0]] == [[f"go on with it: sweep resume {SWEEP_ID}"]] * said


def without_step(monkeypatch: pytest.MonkeyPatch, store: SweepStore) -> None:
    """The sweep's comparison says nothing of what is next."""
    shown = show_sweeps.shown_of(store)
    assert shown.comparison is not None
    comparison = shown.comparison.model_copy(update={"headline": [], "step": ""})
    monkeypatch.setattr(show_sweeps, "shown_of", lambda store: shown.model_copy(update={"comparison": comparison}))


def test_what_the_comparison_says_to_do_next_is_not_said_twice() -> None:
    store, page = saved(make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK), Page()
    show_sweeps.print_sweep(page, store)
    assert [line for line in page.lines if "sweep resume" in line[0]] == [[f"To run the rest: sweep resume {SWEEP_ID}"]]


def test_a_night_goes_on_by_a_command_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store, page = saved(make_plan([make_trial(1)], suite=make_suite("nightly-n"))), Page()
    without_step(monkeypatch, store)
    show_sweeps.print_sweep(page, store)
    assert not any("go on with it" in line[0] for line in page.lines)


def test_no_sweep_is_said_with_what_makes_one() -> None:
    page = Page()
    show_sweeps.print_sweeps(page, show_sweeps.sweep_rows())
    assert page.lines[0][0].endswith("yet; `sweep run bridgetower` makes one")


def test_a_sweeps_trials_with_their_figures() -> None:
    plan = make_plan([make_trial(1), make_trial(2)])
    store = saved(plan)
    summary = {"throughput": 12.34, "step_time_median_s": 0.0525, "data_wait_share": 0.125, "final_loss": 0.51236}
    store.save_result(make_result(plan.trials[0], summary=summary, attempt=2, emulated=True))
    page = Page()
    show_sweeps.print_sweep(page, store)
    assert page.lines[:3] == [
        ["trial", "outcome", "samples/s", "step, ms", "waits for host", "loss", "s", "reason"],
        [plan.trials[0].name, "ok (emulated) (attempt 2)", "12.3", "52.5", "12.5 %", "0.5124", "60.0"],
        [plan.trials[1].name, "to do"],
    ]
    told = show_sweeps.sweep_json(store)
    assert [(entry["outcome"], entry["attempt"], entry["emulated"]) for entry in told["trials"]] == [("ok", 2, True), (None, None, False)]
    known = {name: value for name, value in told["trials"][0]["summary"].items() if value is not None}
    assert known == {**summary, "measured_steps": 0} and told["running"] is False and told["status"] is None
    assert told["held"] is None and any(line[0].startswith("how long the pools were held was not recorded") for line in page.lines)


def test_a_sweep_says_what_share_of_its_held_time_was_measured() -> None:
    plan = make_plan([make_trial(1)])
    store = saved(plan, t1=Outcome.OK)
    write_held(store, plan.trials[0])
    page = Page()
    show_sweeps.print_sweep(page, store)
    rest = "20 % start, 12 % beside the window, 10 % warm-up, 10 % teardown, 8 % evaluation"
    expected = f"measured 40 % of the 10.0 s that the pool was held; the rest: {rest}"
    assert any(line and line[0].startswith(expected) for line in page.lines)
    held = show_sweeps.sweep_json(store)["held"]
    assert held is not None and (held["slots"], len(held["trials"])) == (1, 1)
    assert (held["seconds"], held["measured_share"]) == (pytest.approx(10.0), pytest.approx(0.4))
    assert sum(held["parts"].values()) == pytest.approx(held["seconds"])
    assert show_sweeps.sweep_rows()[0]["measured_share"] is None, "no report has been written"
    keep_held(load_sweep(store.dir))
    assert show_sweeps.sweep_rows()[0]["measured_share"] == pytest.approx(0.4)
    page = Page()
    show_sweeps.print_sweeps(page, show_sweeps.sweep_rows())
    assert page.lines[1][-1] == "40 %"


# --- what can be run, and where


def test_a_pools_problem_stands_below_the_table_and_what_is_unknown_is_empty() -> None:
    row = {"name": "p", "device": "cpu", "address": None, "emulated": True, "reachable": False, "problem": "pool p: is down", "ray": None}
    page = Page()
    show_catalog.print_pools(
        page, [row, {**row, "name": "q", "reachable": True, "emulated": False, "problem": None, "free": 0, "total": 2}]
    )
    assert page.lines[1] == ["p", "cpu (emulated)", "not reachable"]
    assert page.lines[2] == ["q", "cpu", "reachable", "0", "2"]
    assert page.lines[3:] == [["p: is down"]]


def test_a_suite_is_listed_with_the_first_line_of_its_description_or_its_problem() -> None:
    rows = [
        {"name": "a", "workload": "w", "profiles": ["full", "smoke"], "problem": None, "description": "First.\nSecond."},
        {"name": "b", "workload": None, "profiles": [], "problem": "b.yaml:1: is empty", "description": None},
    ]
    page = Page()
    show_catalog.print_suites(page, rows)
    assert page.lines[1:] == [["a", "w", "full, smoke", "First."], ["b", "b.yaml:1: is empty"]]


@pytest.mark.parametrize(("width", "headings"), [(119, 5), (120, 7)])
def test_a_narrow_terminal_leaves_out_what_the_id_and_the_outcomes_tell(monkeypatch: pytest.MonkeyPatch, width: int, headings: int) -> None:
    saved(make_plan([make_trial(1)]), t1=Outcome.OK)
    monkeypatch.setattr(options.out, "width", width)
    head, row = CliRunner().invoke(app, ["list"]).stdout.splitlines()
    assert len(head.replace("started (UTC)", "started").split()) == headings
    assert row.startswith(SWEEP_ID) and "1 ok" in row and ("2" in row.removeprefix(SWEEP_ID)) == (width >= 120)
