"""`sweep campaign`: what runs in which order, what is refused, and that nothing is lost whatever ends it. No trial is started."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from experiments.config.paths import runs_root
from experiments.json_file import sealed_text
from experiments.trial import Outcome, Trial
from flows.cli import run_campaign
from flows.cli.commands import app
from flows.cli.options import err, out
from flows.runtime.interrupts import TOLD_TO_END
from tasks.campaign.store import CampaignStore
from tasks.sweep import deadline
from tasks.sweep.cut import cut
from tasks.sweep.store import Plan, SweepStore, exit_status
from tests.tasks.plan_support import make_result

TWO = """\
campaign: two
budget: 10m
sweeps:
  - {suite: synthetic, profile: smoke, rounds: {most: 1}, budget: 3m, to: docs/results/first}
  - {suite: synthetic, profile: tune, rounds: {most: 1}, only: {dataloader_workers: [0]}, to: docs/results/second}
"""
TRIAL_S = 20.0


class Killed(BaseException):
    """The process ends here, and nothing after it is done."""


class Machine:
    """In place of `run_sweep`: each trial takes 20 s by a clock that nothing else moves. `kill_after`: so many trials, and it dies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.ran: list[list[Trial]] = []
        self.more: list[bool] = []  # of each sweep, whether only other rounds are left of it
        self.go_on: list[str] = []  # what each says that goes on with it
        self.now = 0.0
        self.kill_after: int | None = None
        self.kill_before_report = False
        self.unpublished = False
        self.tell_to_end = False
        self.start_s = 0.0  # what a sweep's start takes
        self.outcome = Outcome.OK
        self.file = folder / "two.yaml"
        self.file.write_text(TWO)
        monkeypatch.setattr(run_campaign, "run_sweep", self.run_sweep)
        monkeypatch.setattr(run_campaign, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(run_campaign, "prepare_environment", lambda: None)
        monkeypatch.setattr(run_campaign, "is_disturbed_by_a_start", lambda pool: True)

    def run_sweep(self, plan: Plan, *_: Any, more: bool, go_on: str) -> int:
        self.more.append(more)
        self.go_on.append(go_on)
        store, ends, ran = SweepStore(plan.sweep_id), deadline.CURRENT.get(), list[Trial]()
        store.clear_status()
        self.ran.append(ran)
        assert ends is not None and store.load_plan() == plan
        ends = replace(ends, clock=lambda: self.now)
        self.now += self.start_s
        for trial in plan.trials:
            if store.result(trial.key) is not None:
                continue
            if not ends.fits(trial, store, plan):
                ends.late.add(trial.key)
            else:
                store.save_result(make_result(trial, self.outcome, started_at=self.now, finished_at=self.now + TRIAL_S))
                self.now += TRIAL_S
                ran.append(trial)
                if self.kill_after is not None and len(ran) >= self.kill_after:
                    raise Killed
        plan = cut(store, plan)
        store.save_plan(plan)
        if self.kill_before_report:
            raise Killed
        store.save_status(1 if self.unpublished else exit_status(store.states(plan)), "made up")
        if self.tell_to_end:
            TOLD_TO_END.set()
        return 1 if ran == [] and ends.late else 0

    def __call__(self, *words: str) -> Result:
        self.ran, self.more, self.go_on, self.now = [], [], [], time.monotonic()
        return CliRunner().invoke(app, ["campaign", str(self.file), *words])

    def killed(self) -> None:
        """The same, with a command that dies."""
        with pytest.raises(Killed):
            self()

    @property
    def counts(self) -> list[tuple[str, int]]:
        """(profile, trials) of each sweep that ran."""
        return [(SweepStore(ran[0].sweep_id).load_plan().profile, len(ran)) for ran in self.ran]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    for console in (out, err):
        monkeypatch.setattr(console, "width", 200)  # no cell of a table is broken into lines
    return Machine(monkeypatch, tmp_path)


def test_sweeps_run_in_the_files_order_and_the_same_command_finds_nothing_left(machine: Machine) -> None:
    done = machine()
    assert done.exit_code == 0, done.output
    assert machine.counts == [("smoke", 1), ("tune", 4)]
    assert "unknown: no past sweep has them" in done.stderr and "all that fits in the sweeps' budgets is measured" in done.stderr
    state = CampaignStore("two").load()
    assert list(state.sweeps) == ["synthetic-smoke", "synthetic-tune"]
    assert machine().exit_code == 0 and machine.ran == []
    assert CampaignStore("two").load() == state


def test_an_interrupted_sweep_is_gone_on_with_by_the_campaign_which_keeps_its_time(machine: Machine) -> None:
    machine("--sweep", "synthetic-tune", "--budget", "75s")
    assert machine.go_on == [f"sweep campaign {machine.file} --sweep synthetic-tune --budget 75s"]


def test_a_pages_command_is_what_was_given(machine: Machine) -> None:
    """The file lies elsewhere, so that its name alone would be unknown."""
    machine()
    for ran, name in zip(machine.ran, ("synthetic-smoke", "synthetic-tune"), strict=True):
        assert SweepStore(ran[0].sweep_id).load_plan().command == f"sweep campaign {machine.file} --sweep {name}"


@pytest.mark.parametrize(("words", "key"), [(["--budget", "10s"], "--budget"), ([], "budget")])
def test_a_time_that_the_report_takes_alone_is_refused(machine: Machine, words: list[str], key: str) -> None:
    machine.file.write_text(TWO.replace("budget: 10m", "budget: 9s"))
    done = machine(*words)
    assert done.exit_code != 0 and machine.ran == []
    time_ = words[-1] if words else "9s"
    assert f"{key}: {time_} leaves no time for a trial: 10s of it are for the report; give more, such as 5m" in done.output
    assert machine("--publish").exit_code != 0 and "leaves no time" not in machine("--publish").output


def test_what_the_time_does_not_hold_waits_for_the_next_run(machine: Machine) -> None:
    machine.file.write_text(TWO.replace("budget: 10m", "budget: 75s"))  # 65 s of them for trials
    for counts in ([("smoke", 1), ("tune", 2)], [("tune", 2)], []):
        done = machine()
        assert (done.exit_code, machine.counts) == (0, counts)
        assert ("not all is measured (synthetic-tune)" in done.stderr) is (("smoke", 1) in counts)
    short = machine("--budget", "29s", "--state", "other")  # 19 s, for trials that are known to take 20
    assert (short.exit_code, machine.ran) == (1, [])
    assert (
        "--budget: 29s is too short for what is left: 19s of it are for trials, and the shortest, a trial of synthetic-smoke, is expected "
        f"to take 20 s; give more, such as `sweep campaign {machine.file} --state other --budget 1m`\n"
    ) in short.output


def test_what_its_sweeps_wait_for_others_is_none_of_a_runs_time_either(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.file.write_text(TWO.replace("budget: 10m", "budget: 75s"))
    run = machine.run_sweep

    def waits_first(plan: Plan, *_: Any, **asked: Any) -> int:
        ends = deadline.CURRENT.get()
        assert ends is not None
        machine.now += 600.0
        ends.waits._before += 600.0
        return run(plan, **asked)

    monkeypatch.setattr(run_campaign, "run_sweep", waits_first)
    done = machine()
    assert (done.exit_code, machine.counts) == (0, [("smoke", 1), ("tune", 2)]), done.output


def test_sweeps_that_are_named_run_alone_in_the_order_in_which_they_are(machine: Machine) -> None:
    machine.file.write_text(TWO + "  - {suite: synthetic, profile: tune, rounds: {most: 1}, to: docs/results/third, name: third}\n")
    tune, smoke = "--sweep=synthetic-tune", "--sweep=synthetic-smoke"
    done = machine(tune, smoke, "--budget", "75s")  # 65 s of them for trials
    assert (done.exit_code, machine.counts) == (0, [("tune", 3)]), done.output
    told = done.stderr.replace("\n", "")
    assert (
        f"go on with it: sweep campaign {machine.file} --sweep synthetic-tune --sweep synthetic-smoke --budget 75swrite its pages" in told
    )
    assert f"write its pages: sweep campaign {machine.file} --publish" in told
    assert machine(tune, smoke).exit_code == 0 and machine.counts == [("tune", 1), ("smoke", 1)]
    assert list(CampaignStore("two").load().sweeps) == ["synthetic-tune", "synthetic-smoke"], "of the same campaign"
    assert machine().exit_code == 0 and [profile for profile, _ in machine.counts] == ["tune"], "the third is left"
    wrong = machine("--sweep", "synthetic-smok")
    assert wrong.exit_code == 1 and machine.ran == []
    assert "--sweep: synthetic-smok: is no sweep of campaign two; did you mean 'synthetic-smoke'?" in wrong.output.replace("\n", "")
    page = machine(smoke, "--publish")
    assert page.exit_code == 1 and "leave it out: a page has all sweeps of its folder" in page.output.replace("\n", "")


def test_a_sweep_leaves_what_is_over_of_a_run_to_the_next_and_goes_on_in_another_run(machine: Machine) -> None:
    machine.file.write_text(
        TWO.replace(
            "profile: smoke, rounds: {most: 1}, budget: 3m",
            "profile: tune, rounds: {most: 1}, only: {dataloader_workers: [0]}, name: first, per_run: 45s",
        )
    )
    assert "45s a run" in machine("--plan").stdout
    for counts in ([("tune", 2), ("tune", 4)], [("tune", 2)], []):
        done = machine()
        assert (done.exit_code, machine.counts) == (0, counts), done.output
        assert ("not all is measured (first)" in done.stderr) is (len(counts) == 2)
    over = machine("--plan").stdout
    assert over.count("all is measured") == 2 and "a run" not in over.split("for trials in this run")[0], "what is over may take nothing"
    machine.file.write_text(machine.file.read_text().replace("per_run: 45s", "per_run: 5s, set: {measure_s: 30}"))
    done = machine("--state", "other")
    assert done.exit_code == 1 and "per_run of first: is 5s, and its shortest trial is expected to take 30 s" in done.output


def test_a_sweep_that_this_run_is_too_short_for_does_not_keep_the_others_from_it(machine: Machine) -> None:
    """The file gives it enough in a run: it waits for a longer one."""
    machine.file.write_text(TWO.replace("rounds: {most: 1}, budget: 3m", "rounds: {most: 1}, set: {measure_s: 60}, per_run: 2m"))
    done = machine("--budget", "65s")  # 55 s of them for trials
    assert (done.exit_code, machine.counts) == (0, [("tune", 2)]), done.output


def test_a_sweep_of_which_nothing_is_known_does_not_begin_in_less_than_what_trials_usually_take(machine: Machine) -> None:
    """It would be planned, reported on and left without a trial."""
    done = machine("--budget", "49s")  # 39 s of them for trials: one of 20 s, and 19 s are left
    assert (done.exit_code, machine.counts) == (0, [("smoke", 1)]), done.output
    assert "not all is measured (synthetic-tune)" in done.stderr and list(CampaignStore("two").load().sweeps) == ["synthetic-smoke"]


def test_a_sweep_of_which_only_rounds_are_left_is_told_that_it_has_time_for_them(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its end in the run before would be its end for good."""
    assert machine().exit_code == 0 and machine.more == [False, False]
    machine.file.write_text(TWO.replace("rounds: {most: 1}, budget: 3m", "rounds: {least: 2, most: 2}, budget: 10m"))
    monkeypatch.setattr("tasks.campaign.entries.one_more_round", lambda store, plan, ran_s: None)
    assert machine().exit_code == 0 and machine.more == [False]
    once_more = lambda trial: trial.model_copy(update={"key": trial.key[::-1], "repeat": 2})  # noqa: E731
    grown = lambda plan: {"trials": [*plan.trials, *map(once_more, plan.trials)]}  # noqa: E731
    monkeypatch.setattr("tasks.campaign.entries.one_more_round", lambda store, plan, ran_s: plan.model_copy(update=grown(plan)))
    machine()
    assert machine.more == [True]


def test_a_template_is_begun_one_sweep_ahead_and_no_further(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun all at once they would hold up the first one's imports."""
    line = "  - {{suite: {0}, profile: smoke, rounds: {{most: 1}}, to: docs/results/{0}}}\n"
    machine.file.write_text("campaign: two\nbudget: 60m\nsweeps:\n" + "".join(map(line.format, ("bert", "t5", "vit", "clip_stability"))))
    begun: list[str] = []
    monkeypatch.setattr(run_campaign, "is_disturbed_by_a_start", lambda pool: False)
    monkeypatch.setattr(run_campaign.LocalLauncher, "prepare", lambda self, trial, folder: begun.append(trial.workload))
    run = machine.run_sweep
    monkeypatch.setattr(run_campaign, "run_sweep", lambda plan, *_, **asked: [begun.append("a sweep"), run(plan, **asked)][1])
    done = machine()
    assert done.exit_code == 0, done.output
    assert " ".join(begun) == "bert t5 a sweep t5 vit a sweep vit clip a sweep clip a sweep"
    begun.clear()
    monkeypatch.setattr(run_campaign, "is_disturbed_by_a_start", lambda pool: True)
    assert machine("--state", "busy").exit_code == 0
    assert begun == ["a sweep"] * 4


def test_a_kill_in_the_middle_loses_nothing(machine: Machine) -> None:
    machine.kill_after = 2
    machine.killed()
    assert machine.counts == [("smoke", 1), ("tune", 2)]
    ids = CampaignStore("two").load().sweeps
    machine.kill_after = None
    done = machine()
    assert done.exit_code == 0, done.output
    assert machine.counts == [("tune", 2)], "the other two trials, in the same sweep"
    assert CampaignStore("two").load().sweeps == ids


def test_a_kill_before_a_sweep_has_its_plan_leaves_its_id_to_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    save, killed = SweepStore.save_plan, list[str]()

    def kill(store: SweepStore, plan: Plan) -> None:
        if not killed:
            killed.append(store.sweep_id)
            raise Killed
        save(store, plan)

    monkeypatch.setattr(SweepStore, "save_plan", kill)
    machine.killed()
    assert machine.ran == [] and CampaignStore("two").load().sweeps == {"synthetic-smoke": killed[0]}
    machine()
    assert machine.ran[0][0].sweep_id == killed[0]


def test_who_is_told_to_end_begins_no_other_sweep(machine: Machine) -> None:
    machine.tell_to_end = True
    done = machine()
    assert (done.exit_code, machine.counts) == (1, [("smoke", 1)])
    assert "told to end" in done.stderr and f"go on with it: sweep campaign {machine.file}" in done.stderr.replace("\n", "")


def test_a_rehearsal_has_a_state_of_its_own_and_measures_what_it_is_told(machine: Machine) -> None:
    assert machine("--set", "steps=50", "--set", "batch_size=16").exit_code == 0
    assert machine.counts == [("smoke", 1), ("tune", 1)], "a value that is set is no choice of `only`"
    assert {trial.parameters["steps"] for ran in machine.ran for trial in ran} == {50}
    sweeps = CampaignStore("two-rehearsal").load().sweeps
    assert CampaignStore("two").load().sweeps == {} and len(sweeps) == 2
    assert {SweepStore(sweep_id).load_plan().command for sweep_id in sweeps.values()} == {
        f"sweep campaign {machine.file} --set steps=50 --set batch_size=16 --sweep synthetic-{profile}" for profile in ("smoke", "tune")
    }, "as it was given: without the settings it is another sweep"


def test_a_budget_in_which_no_trial_fits_is_refused_before_anything_starts(machine: Machine) -> None:
    machine.file.write_text(TWO.replace("budget: 3m", "budget: 5s, set: {measure_s: 30}"))
    done = machine()
    assert done.exit_code == 1 and machine.ran == []
    assert "budget of synthetic-smoke: is 5s, and its shortest trial is expected to take 30 s; give it more time" in done.output
    assert CampaignStore("two").load().sweeps == {}


def test_a_damaged_state_is_named(machine: Machine) -> None:
    machine()
    store = CampaignStore("two")
    path = store.dir / "campaign.json"
    path.write_text(sealed_text(store.load()).replace('"earlier": []', '"earlier": ["x"]'))
    done = machine()
    assert done.exit_code == 1 and "campaign.json was changed after it was written" in done.output.replace("\n", "")


def test_changed_code_does_not_take_the_place_of_what_was_measured_unasked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.kill_after = 2
    machine.killed()
    machine.kill_after = None
    monkeypatch.setattr("tasks.sweep.plan.libraries_version", lambda *_: "other")
    done = machine()
    assert done.exit_code == 1 and machine.ran == []
    plan = SweepStore(CampaignStore("two").load().sweeps["synthetic-tune"]).load_plan()
    assert (
        f"campaign: synthetic-tune: 2 of its trials, in {plan.sweep_id}, were measured with something else: libraries changed"
        in done.stderr
    )
    assert done.stderr.endswith(
        "; --again measures them again, as `sweep resume` would; or go on with what measured them, "
        f"planned at commit {plan.git['commit'][:12]}; others alone: --sweep NAME\n"
    )
    assert machine("--again").exit_code == 0 and machine.counts == [("tune", 4)]


def test_the_plan_is_shown_without_starting_anything(machine: Machine) -> None:
    done = machine("--plan")
    assert done.exit_code == 0 and "synthetic-tune" in done.stdout and machine.ran == []
    assert not runs_root().exists() or not any(path.name.startswith("synthetic") for path in runs_root().iterdir())
