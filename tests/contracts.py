"""The contract of a launcher, as checks that any implementation must pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cluster import launchers
from cluster.journal.journal import read_journal
from cluster.launchers import Launch, Launcher, Status, processes
from experiments import workloads
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, Trial, TrialResult, digest

DEADLINE_S = 120.0


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
        time.sleep(0.05)
    raise AssertionError(f"{launch} was not over after {DEADLINE_S} s")


def result_of(folder: Path) -> TrialResult:
    return TrialResult.model_validate_json((folder / "result.json").read_text())


def launcher_contract(make: Callable[[], Launcher], root: Path) -> None:
    """Raises AssertionError where a launcher does not keep the contract. `make` gives a fresh launcher, as a new process would have."""
    launcher = make()

    # a trial runs to its end and publishes its result
    done = root / "done"
    trial = make_trial(done, "aaaa000000000001")
    launch = launcher.start(trial, done, 1)
    launchers.save(launch, done)
    status = wait(launcher, launch)
    assert status.exit_code == 0, launcher.log(launch, done)
    assert result_of(done).outcome is Outcome.OK, result_of(done)
    assert [step["step"] for step in read_journal(done / "journal.jsonl").steps] == list(range(1, 8))

    # stopping what is over is harmless, and changes nothing
    launcher.stop(launch)
    assert result_of(done).outcome is Outcome.OK

    # a launcher that did not start it finds it from launch.json, sees it running, and can stop it
    endless = root / "endless"
    trial = make_trial(endless, "aaaa000000000002", steps=1_000_000)
    launchers.save(launcher.start(trial, endless, 1), endless)
    other, found = make(), launchers.load(endless)
    assert found is not None
    status = wait(other, found, until=lambda: bool(read_journal(endless / "journal.jsonl").steps))
    assert status.running
    other.stop(found)
    assert not other.status(found).running
    assert not launcher.status(found).running
    assert processes.of_trial(trial.key) == []

    # a process that dies without a result shows as over, without success
    killed = root / "killed"
    trial = make_trial(killed, "aaaa000000000003", steps=1_000_000)
    launch = launcher.start(trial, killed, 1)
    wait(launcher, launch, until=lambda: bool(read_journal(killed / "journal.jsonl").steps))
    for process in processes.of_trial(trial.key):
        process.kill()
    status = wait(launcher, launch)
    assert status.exit_code != 0
    assert not (killed / "result.json").exists()
    launcher.stop(launch)
