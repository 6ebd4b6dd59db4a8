"""The contract of a launcher, as checks that any implementation must pass."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from cluster import launchers
from cluster.journal.journal import JournalFollower, read_journal
from cluster.launchers import Launch, Launcher, Status, processes
from experiments import workloads
from experiments.atomic_file import atomic_write
from experiments.json_file import parse_model
from experiments.trial import Outcome, Trial, TrialResult, digest

DEADLINE_S = 300.0  # of a busy machine
_LOOK_S = {"local": 0.05, "ray_job": 0.5}  # how often a launch is asked about; a head takes some 20 ms of CPU time to answer


def make_trial(folder: Path, key: str, workload: str = "synthetic", **parameters: object) -> Trial:
    """A small trial of a workload, with its trial.json in `folder`."""
    values = workloads.load(workload).Parameters(**{"steps": 5, "warmup_steps": 2, "evaluate": False, **parameters}).model_dump(mode="json")
    trial = Trial(
        key=key,
        key_parts={},
        sweep_id="contract-20260101-000000-0000",
        suite="contract",
        workload=workload,
        pool="cpu",
        device="cpu",
        cell=digest(values),
        repeat=1,
        index=0,
        axes={"pool": "cpu"},
        parameters=values,
    )
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "trial.json", trial.model_dump_json())
    return trial


def wait(launcher: Launcher, launch: Launch, until: Callable[[], bool] | None = None) -> Status:
    """Follow a launch to its end, or until `until` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        status = launcher.status(launch)
        if not status.running or (until is not None and until()):
            return status
        time.sleep(_LOOK_S[launch.launcher])
    raise AssertionError(f"{launch} was not over after {DEADLINE_S} s")


def result_of(folder: Path) -> TrialResult:
    return parse_model((folder / "result.json").read_bytes(), TrialResult, folder, "")


def launcher_contract(make: Callable[[], Launcher], root: Path) -> None:
    """Raises AssertionError where a launcher does not keep the contract. `make` gives a fresh launcher, as a new process would have.

    Its trials have keys of their own: what starts a trial ends all of this machine that has its key, also another process's tests.
    $SWEEPBENCH_EXTRA must name tests/workloads_for_tests.
    """
    launcher = make()
    _a_trial_runs_to_its_end(launcher, root / "done")
    folder = root / "endless"
    parameters = {"steps": 1_000_000, "fault": "setsid_child", "fault_step": 2}
    trial = make_trial(folder, digest([str(root), 2]), "faulty", **parameters)
    first, said_first = _a_process_that_dies_is_over_without_success(launcher, trial, folder)
    _another_process_finds_the_second_attempt_and_stops_all_of_it(make, launcher, trial, folder)
    assert said_first in launcher.log(first, folder), "what the first attempt said is gone"


def _a_trial_runs_to_its_end(launcher: Launcher, folder: Path) -> None:
    """And publishes its result."""
    launch = launcher.start(make_trial(folder, digest([str(folder), 1])), folder, 1)
    status = wait(launcher, launch)
    assert status.exit_code == 0, launcher.log(launch, folder)
    assert result_of(folder).outcome is Outcome.OK, result_of(folder)
    assert [step["step"] for step in read_journal(folder / "journal.jsonl").steps] == list(range(1, 8))
    launcher.stop(launch)  # stopping what is over is harmless, and changes nothing
    assert result_of(folder).outcome is Outcome.OK


def _a_process_that_dies_is_over_without_success(launcher: Launcher, trial: Trial, folder: Path) -> tuple[Launch, str]:
    """Returns the launch and what it had said."""
    launch = launcher.start(trial, folder, 1)
    left = _left_behind(launcher, launch, folder)
    for process in processes.of_trial(trial.key):
        with contextlib.suppress(psutil.NoSuchProcess):  # Ray ends the others of a trial as soon as one of them is gone
            process.kill()
    status = wait(launcher, launch)
    assert status.exit_code != 0
    assert not (folder / "result.json").exists()
    launcher.stop(launch)
    return launch, f"left process {left} behind"


def _another_process_finds_the_second_attempt_and_stops_all_of_it(
    make: Callable[[], Launcher], launcher: Launcher, trial: Trial, folder: Path
) -> None:
    """From launch.json alone, as it is before or after the start, or the journal alone, with the child that left the trial's session."""
    launchers.save(launcher.start(trial, folder, 2), folder)
    other, found = make(), launchers.load(folder)
    assert found is not None and found.attempt == 2
    left = _left_behind(other, found, folder)
    left_born = processes.start_time(left)
    begun = [record for record in JournalFollower(folder / "journal.jsonl").poll() if record["kind"] == "attempt"][-1]
    starting = other.starting(trial, folder, 2)
    assert starting.starting and other.find_started(starting) == found and other.status(starting).running
    lost = other.find_lost(trial, folder, begun)
    assert lost.model_copy(update={"born": found.born}) == found and other.status(lost).running
    assert left in [process.pid for process in processes.of_trial(trial.key)]
    assert other.status(found).running
    other.stop(found)
    assert not other.status(found).running
    assert not launcher.status(found).running
    assert not other.status(other.find_lost(trial, folder, begun)).running
    assert processes.of_trial(trial.key) == [] and not processes.alive(left, left_born)


def _left_behind(launcher: Launcher, launch: Launch, folder: Path) -> int:
    """Once the attempt runs: the process that it left in a session of its own, as its log says."""
    found: list[str] = []

    def said() -> bool:
        journal = read_journal(folder / "journal.jsonl")
        if journal.attempt == launch.attempt and journal.steps:
            found[:] = re.findall(r"left process (\d+) behind", launcher.log(launch, folder))[-1:]
        return any(process.pid == int(pid) for pid in found for process in processes.of_trial(launch.key))

    status = wait(launcher, launch, until=said)
    assert status.running and found, launcher.log(launch, folder)
    return int(found[0])
