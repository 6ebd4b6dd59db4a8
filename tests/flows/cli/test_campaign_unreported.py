"""`sweep campaign` and a sweep whose trials are done and whose report or MLflow runs are not."""

from __future__ import annotations

from typing import Any

import pytest

from flows.cli import run_campaign
from tests.flows.cli.test_campaign import TWO, Killed, Machine, machine

__all__ = ["machine"]  # a fixture


def test_a_sweep_that_was_killed_before_its_report_gets_it_from_the_same_command(machine: Machine) -> None:
    """All its trials had ended, so that the command once went on to the next sweep, and ended with status 0."""
    machine.kill_before_report = True
    machine.killed()
    machine.kill_before_report = False
    assert "all is measured, not reported" in machine("--plan").stdout and machine.ran == []
    done = machine()
    assert (done.exit_code, [len(ran) for ran in machine.ran], machine.more) == (0, [0, 4], [False, False])
    assert "all that fits in the sweeps' budgets is measured" in done.stderr
    assert machine().exit_code == 0 and machine.ran == []


def test_a_sweep_of_which_not_all_could_be_published_is_gone_on_with(machine: Machine) -> None:
    machine.unpublished = True
    done = machine()
    said = "not all is reported and in MLflow (synthetic-smoke, synthetic-tune); go on with it: sweep campaign"
    assert said in done.stderr and "not all is measured" not in done.stderr
    machine.unpublished = False
    assert machine().exit_code == 0 and [len(ran) for ran in machine.ran] == [0, 0]
    assert machine().exit_code == 0 and machine.ran == []


def test_a_sweep_that_was_cut_for_want_of_time_is_not_taken_for_one_without_a_report(machine: Machine) -> None:
    """Its flow ended well with what there was time for; the trials that were cut are in its plan again."""
    machine.file.write_text(TWO.replace("only: {dataloader_workers: [0]}", "only: {dataloader_workers: [0]}, budget: 45s"))
    first = machine()
    assert (first.exit_code, machine.counts) == (0, [("smoke", 1), ("tune", 2)])
    assert "not reported" not in machine("--plan").stdout
    again = machine()
    assert (again.exit_code, machine.ran) == (0, []) and "not all is reported" not in again.stderr


def test_a_report_that_a_killed_sweep_lacks_needs_no_time_for_a_trial(machine: Machine) -> None:
    machine()
    machine.kill_before_report = True
    with pytest.raises(Killed):
        machine("--state", "other")
    machine.kill_before_report = False
    done = machine("--budget", "29s", "--state", "other")  # 19 s, for trials that are known to take 20
    assert (done.exit_code, machine.ran) == (0, [[]])
    assert "not all is measured (synthetic-tune); go on" in done.stderr


@pytest.mark.parametrize("before", ["all was reported", "nothing was measured"])
def test_a_sweep_that_lacks_trials_alone_waits_for_time(machine: Machine, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    def dies(*_: Any, **asked: Any) -> int:
        raise Killed

    machine()
    if before == "all was reported":
        assert "not all is measured (synthetic-tune); go on" in machine("--budget", "75s", "--state", "other").stderr
        assert machine.counts == [("smoke", 1), ("tune", 2)]
    else:
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(run_campaign, "run_sweep", dies)
            machine("--state", "other")
    short = machine("--budget", "29s", "--state", "other")
    assert (short.exit_code, machine.ran) == (1, [])
    assert "--budget: 29s is too short for what is left: 19s of it are for trials, and the shortest, a trial of synthetic-" in short.output
