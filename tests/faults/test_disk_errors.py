"""The disk of a sweep's folder is full, or can no longer be written, under a running trial (row 16)."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import processes
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.sweep.store import SweepStore
from tests import cli_support
from tests.cli_support import DEADLINE_S, running_step, until
from tests.mlflow_support import check_projection
from tests.running_support import Running, follow

__all__ = ["follow"]  # a fixture
pytestmark = [pytest.mark.fault, pytest.mark.timeout(600), pytest.mark.usefixtures("mlflow_database")]
_UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
_ENTER = ["nsenter", "--mount"] if os.geteuid() == 0 else ["nsenter", "--user", "--preserve-credentials", "--mount"]


@dataclass(frozen=True)
class TinyDisk:
    """A file system of 24 MiB on `path`, which only the processes of one mount namespace see; it is gone with the namespace."""

    holder: int
    path: Path

    @property
    def seen(self) -> Path:
        """The same folder, for processes outside."""
        return Path(f"/proc/{self.holder}/root{self.path}")

    def enter(self, command: list[str]) -> list[str]:
        return [*_ENTER, f"--target={self.holder}", *command]

    def fill(self) -> None:
        """Take all that is free. The next byte that anybody writes has no place."""
        with open(self.seen / "filler", "wb", buffering=0) as file:
            for size in (2**16, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    def make_room(self) -> None:
        (self.seen / "filler").unlink()

    def protect(self) -> None:
        """Make the folder read-only, also for root; files that are open stay as they are."""
        self._mount("--bind", str(self.path), str(self.path))
        self._mount("-o", "remount,bind,ro", str(self.path))

    def unprotect(self) -> None:
        subprocess.run(self.enter(["umount", str(self.path)]), check=True)

    def _mount(self, *arguments: str) -> None:
        subprocess.run(self.enter(["mount", *arguments]), check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[TinyDisk]:
    """With what is in the test's runs folder."""
    path = tmp_path / "tiny"
    path.mkdir()
    at, runs = shlex.quote(str(path)), shlex.quote(str(runs_root()))
    script = f"mount -t tmpfs -o size=24m tiny {at} && cp -a {runs}/. {at} && echo up && read end"
    with subprocess.Popen([*_UNSHARE, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        try:
            if holder.stdout.readline() != "up\n":
                pytest.skip("this user may not mount a file system in a namespace of its own")
            yield TinyDisk(holder.pid, path)
        finally:
            holder.stdin.close()


def test_row_16_a_full_disk_is_named_and_what_was_measured_before_is_whole(disk: TinyDisk, tmp_path: Path) -> None:
    inside = {"SWEEPBENCH_RUNS": str(disk.path)}
    process = cli_support.start("run", "one_of_three", folder=tmp_path, through=disk.enter, **inside)
    store = until(running_step(1, root=disk.seen), process)  # the first trial is done, the second on its way
    plan = store.load_plan()
    first, second, third = (store.trial_dir(trial.key) for trial in plan.trials)
    finished = {name: (first / name).read_bytes() for name in ("journal.jsonl", "result.json")}
    disk.fill()
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, text
    assert "disk_full" in text and "Traceback" not in text, text
    assert {name: (first / name).read_bytes() for name in finished} == finished
    assert len(read_journal(second / "journal.jsonl").steps) >= 3 and not (third / "journal.jsonl").exists()  # no further trial begins

    disk.make_room()
    status, text = cli_support.sweep("resume", "last", folder=tmp_path, through=disk.enter, **inside)
    assert status == 0, text
    results = [store.result(trial.key) for trial in plan.trials]
    assert [(result.outcome, result.attempt) for result in results if result] == [(Outcome.OK, 1), (Outcome.OK, 2), (Outcome.OK, 1)]
    assert {name: (first / name).read_bytes() for name in finished} == finished
    shutil.copytree(disk.seen, runs_root(), dirs_exist_ok=True)  # MLflow is asked outside
    check_projection(SweepStore(store.sweep_id))


def test_a_folder_that_becomes_read_only_stops_the_sweep_and_a_resume_counts_what_was_measured(disk: TinyDisk, tmp_path: Path) -> None:
    inside = {"SWEEPBENCH_RUNS": str(disk.path)}
    process = cli_support.start("run", "one_of_three", folder=tmp_path, through=disk.enter, **inside)
    store = until(running_step(1, root=disk.seen), process)
    plan = store.load_plan()
    disk.protect()
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, text
    said = f"disk_lost: the sweep's folder {disk.path / store.sweep_id} cannot be written (Read-only file system); mount it for writing"
    assert said in " ".join(text.split()) and "Traceback" not in text, text
    assert [store.result(trial.key) is not None for trial in plan.trials] == [True, False, False]

    disk.unprotect()
    status, text = cli_support.sweep("resume", "last", folder=tmp_path, through=disk.enter, **inside)
    assert status == 0, text
    results = [store.result(trial.key) for trial in plan.trials]
    assert [(result.outcome, result.attempt) for result in results if result] == [(Outcome.OK, 1)] * 3, "its journal was open and is whole"


def test_a_disk_that_fails_under_a_trial_costs_an_attempt(follow: Callable[..., Running], tmp_path: Path) -> None:
    embedded = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    running = follow(embedded, "ffff000000000160", retries=1, fault="io_error", steps=100_000, step_sleep_s=0.01, fault_step=3)
    running.until(lambda: len(getattr(running.store, "results", [])) == 1)
    running.stop.set()
    running.end()
    embedded.close()
    first = running.store.results[0]
    assert (tmp_path / "fault-fired").read_text().startswith("io_error at step 3, ")
    said = f"disk_lost: nothing can be written any more on the disk of {running.folder}: the trial's result could not be written; mount it"
    assert first.outcome is Outcome.INFRA and first.reason is not None and first.reason.startswith(said), first
    assert f"[Errno 5] Input/output error: '{running.folder / 'journal.jsonl'}'" in (first.detail or "")
    assert processes.of_trial(running.trial.key) == []


def test_a_data_sets_disk_that_fails_is_not_taken_for_the_trials_own(follow: Callable[..., Running], tmp_path: Path) -> None:
    embedded = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    running = follow(embedded, "ffff000000000161", retries=1, fault="data_error", fault_step=3, marker_dir=str(tmp_path))
    result = running.end()
    embedded.close()
    first = running.store.results[0]
    assert (tmp_path / "fault-fired").read_text().startswith("data_error at step 3, ")
    assert first.outcome is Outcome.INFRA and first.reason is not None, first
    assert first.reason.startswith(
        "data_lost: [Errno 5] Input/output error; of which file is not told, and the trial's own folder can be"
    ), first
    assert (result.outcome, result.attempt) == (Outcome.OK, 2), "a disk may come back"
