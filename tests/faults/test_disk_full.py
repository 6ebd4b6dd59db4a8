"""The disk of a sweep's folder is full under a running trial (row 16)."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.sweep.store import SweepStore
from tests import cli_support
from tests.cli_support import DEADLINE_S, running_step, until
from tests.mlflow_support import check_projection

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
