"""`sweep campaign`: what it says of a sweep that has fewer rounds than it is to have. No trial is started."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.trial import Outcome
from flows.cli import run_campaign
from flows.cli.options import err
from flows.cli.show_campaign import print_in_vain
from tasks.sweep import deadline
from tasks.sweep.store import Plan
from tests.flows.cli.test_campaign import TWO, Machine, machine

__all__ = ["machine"]  # a fixture

ROUNDS = """\
campaign: two
budget: {run}
sweeps:
  - {{suite: synthetic, profile: smoke, rounds: {{least: 3, most: 3}}, budget: {own}, name: slow, to: docs/results/first}}
"""


def test_a_sweep_whose_budget_ends_before_its_least_rounds_says_so_and_not_that_all_is_measured(machine: Machine) -> None:
    rounds = TWO.replace("rounds: {most: 1}, budget: 3m", "rounds: {least: 3, most: 3}, budget: 25s, name: short")
    machine.file.write_text(rounds)
    done = machine()
    assert (done.exit_code, machine.counts) == (0, [("smoke", 1), ("tune", 4)])
    assert "short has 1 round of at least 3: no other fits in its budget of 25s; a longer one lets it go on\n" in done.stderr
    assert "synthetic-tune has" not in done.stderr, "its rounds are not asked for"
    plan = next(line for line in machine("--plan").stdout.splitlines() if " short " in line)
    assert "1 of up to 3" in plan and "no time left" in plan and "all is measured" not in plan
    machine.file.write_text(rounds.replace("25s", "70s"))
    longer = machine("--plan").stdout
    line = next(line for line in longer.splitlines() if " short " in line)
    assert "no time left" not in longer and line.count("then more rounds") == 1 and " up to 20 s a round " in line


def test_the_time_that_keeps_a_sweep_from_its_rounds_is_named(machine: Machine) -> None:
    rounds = TWO.replace("rounds: {most: 1}, budget: 3m", "rounds: {least: 3, most: 3}, budget: 60m, per_run: 25s, name: slow")
    machine.file.write_text(rounds)
    assert "slow has" not in machine().stderr, "a round of 20 s fits in a run"
    machine.file.write_text(rounds.replace("per_run: 25s", "per_run: 15s"))
    assert "slow has 1 round of at least 3: no other fits in its per_run of 15s; a longer one lets it go on\n" in machine().stderr


def test_a_run_that_is_too_short_for_another_round_is_not_taken_for_the_sweeps_own_time(machine: Machine) -> None:
    """Its budget holds two more rounds of 20 s; this run has 19 s for trials."""
    machine.file.write_text(ROUNDS.format(run="10m", own="60m, per_run: 25s"))
    assert machine().exit_code == 0 and machine.counts == [("smoke", 1)]
    asks = "is too short for what is left: 19s of it are for trials, and the shortest, another round of slow, is expected to take 20 s; "
    again = f"sweep campaign {machine.file} --sweep slow --budget"
    for words in ([], ["--plan"]):
        short = machine("--sweep", "slow", "--budget", "29s", *words)
        assert (short.exit_code, machine.ran) == (1, [])
        assert f"error: --budget: 29s {asks}give more, such as `{again} 1m`\n" in short.stderr
        table = short.stdout if words else ""
        assert "no time left" not in table and table.count(", then more rounds") == table.count("up to 20 s a round") == len(words)
    machine.file.write_text(ROUNDS.format(run="29s", own="60m, per_run: 25s"))
    assert f"error: budget: 29s {asks}give more, such as `sweep campaign {machine.file} --budget 1m`\n" in machine().stderr
    machine("--budget", "30s")
    assert machine.more == [True], "a round takes just as long"


def test_after_a_run_whose_time_holds_no_other_round_the_command_with_enough_of_it_is_told(machine: Machine) -> None:
    machine.file.write_text(ROUNDS.format(run="10m", own="60m"))
    done = machine("--budget", "29s")  # 19 s of them for a trial of which nothing is known, and which takes 20
    assert (done.exit_code, machine.counts) == (0, [("smoke", 1)]), done.output
    assert f"not all is measured (slow); go on with it: sweep campaign {machine.file} --budget 1m\n" in done.stderr
    assert "all that fits" not in done.stderr and "slow has" not in done.stderr


def test_no_time_is_blamed_where_nothing_of_a_sweep_runs(machine: Machine) -> None:
    machine.file.write_text(TWO.replace("rounds: {most: 1}, budget: 3m", "rounds: {least: 3, most: 3}, budget: 25s, name: short"))
    machine.outcome = Outcome.UNSUPPORTED
    done = machine()
    assert done.exit_code == 0 and machine.counts[0] == ("smoke", 1), done.output
    assert "short has" not in done.stderr and "all that fits in the sweeps' budgets is measured" in done.stderr
    assert "no time left" not in machine("--plan").stdout


def test_a_run_whose_start_leaves_no_time_for_the_round_that_it_begins_for_asks_for_a_longer_one(machine: Machine) -> None:
    """Else the command that it names would do the same again, and again."""
    machine.file.write_text(ROUNDS.format(run="31s", own="60m"))
    assert machine().exit_code == 0 and machine.counts == [("smoke", 1)]
    for words, enough in (([], "1m"), (["--budget", "2m"], "3m")):
        done = machine(*words)
        assert (done.exit_code, machine.more) == (1, [True]), "it is begun, and comes to no trial"
        assert "this run measured nothing: its time was too short for a trial once it had started\n" in done.stderr
        assert f"not all is measured (slow); go on with it: sweep campaign {machine.file} --budget {enough}\n" in done.stderr
    machine.file.write_text(ROUNDS.format(run="31s", own="25s"))
    done = machine()
    assert done.exit_code == 0 and "measured nothing" not in done.stderr, "its own time is over"


def test_a_run_in_vain_whose_sweeps_have_all_the_time_that_the_file_gives_them_names_the_files_key(machine: Machine) -> None:
    """A longer run would give them no more: the command that it names is to be given once the file is changed."""
    nothing = "this run measured nothing: the time that two.yaml gives its sweeps was too short for a trial once it had started; "
    for own, asks in (("60m, per_run: 25s", "per_run: 1m"), ("45s", "budget: 1m")):
        machine.file.write_text(ROUNDS.format(run="31s", own="60m, per_run: 25s"))
        machine("--again")
        machine.file.write_text(ROUNDS.format(run="10m", own=own))
        done = machine()
        assert (done.exit_code, machine.more) == (1, [True]), done.output
        assert f"{nothing}give more there, such as `{asks}` of slow\n" in done.stderr
        assert f"not all is measured (slow); go on with it: sweep campaign {machine.file}\n" in done.stderr


def test_a_sweep_whose_start_takes_all_its_time_in_a_run_says_which_key_to_change(machine: Machine) -> None:
    """Its flow ends as incomplete, with status 1: that alone tells nobody what to do, and the same command does the same again."""
    machine.file.write_text(ROUNDS.format(run="10m", own="60m, per_run: 5s"))
    machine.start_s = 6.0
    for _ in range(2):
        done = machine()
        assert (done.exit_code, machine.ran) == (1, [[]]), done.output
        assert "this run measured nothing: the time that two.yaml gives its sweeps was too short for a trial" in done.stderr
        assert "; give more there, such as `per_run: 1m` of slow\n" in done.stderr
        assert "--publish" not in done.stderr, "there is nothing to write"
    machine.file.write_text(ROUNDS.format(run="10m", own="60m, per_run: 1m"))
    done = machine()
    assert (done.exit_code, machine.counts) == (0, [("smoke", 1)]) and "measured nothing" not in done.stderr
    assert f"write its pages: sweep campaign {machine.file} --publish" in done.stderr


@pytest.mark.parametrize(
    ("late", "in_vain"),
    [(lambda keys: keys, True), (lambda keys: keys[1:], False), (lambda keys: [], False)],
)
def test_a_sweep_that_failed_with_a_trial_for_which_there_was_time_is_not_called_short_of_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, late: Callable[[list[str]], list[str]], in_vain: bool
) -> None:
    """As where the pool of its first trial did not answer."""

    def ends_with_one(plan: Plan, *_: object, **__: object) -> int:
        ends = deadline.CURRENT.get()
        assert ends is not None
        ends.late.update(late([trial.key for trial in plan.trials]))
        return 1

    machine.file.write_text(ROUNDS.format(run="10m", own="60m, per_run: 1m").replace("smoke", "tune"))
    monkeypatch.setattr(run_campaign, "run_sweep", ends_with_one)
    done = machine()
    assert (done.exit_code, "this run measured nothing" in done.stderr) == (1, in_vain), done.output


def test_a_sweep_that_failed_before_another_round_of_it_is_not_called_short_of_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was left of the rounds before, so it was not for want of time that nothing of them began."""
    machine.file.write_text(ROUNDS.format(run="31s", own="60m"))
    assert machine().exit_code == 0 and machine.counts == [("smoke", 1)]
    calls: list[bool] = []

    def fails(plan: Plan, *_: object, more: bool, **__: object) -> int:
        ends = deadline.CURRENT.get()
        assert ends is not None
        ends.late.add("of another round")
        calls.append(more)
        return 1

    monkeypatch.setattr(run_campaign, "run_sweep", fails)
    machine.file.write_text(ROUNDS.format(run="10m", own="60m"))
    done = machine()
    assert (done.exit_code, calls) == (1, [True]) and "measured nothing" not in done.stderr


def test_of_the_times_to_give_three_are_named() -> None:
    own = [f"`budget: {number}m` of {name}" for number, name in enumerate("abcd", 1)]
    for known, told in ((3, f"{own[0]}, {own[1]} and {own[2]}"), (4, f"{own[0]}, {own[1]} and 2 more")):
        with err.capture() as printed:
            print_in_vain(err, "two.yaml", own[:known])
        assert printed.get().endswith(f" once it had started; give more there, such as {told}\n")
