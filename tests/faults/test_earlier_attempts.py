"""A process of an earlier attempt still writes into the trial's folder as the next one begins: on a host that its cluster lost, say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.journal.writer_lock import ENDED_S
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from cluster.process_marks import MARK
from experiments.trial import Outcome
from tests.cli_support import ROOT
from tests.running_support import Running, follow

__all__ = ["follow"]  # a fixture
pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
_WRITE = """
import sys, time
from pathlib import Path
from cluster.journal.journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]), 1, trial=sys.argv[2])
print("writes", flush=True)
time.sleep(600)
"""


@contextmanager
def elsewhere(folder: Path, key: str) -> Iterator[subprocess.Popen[str]]:
    """Attempt 1 of a trial, which its launcher cannot find: it has no mark, as on another host."""
    variables = {name: value for name, value in os.environ.items() if name != MARK}
    command = [sys.executable, "-c", _WRITE, str(folder / "journal.jsonl"), key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=variables) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "writes\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def embedded() -> Iterator[LocalLauncher]:
    launcher = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    yield launcher
    launcher.close()


def test_no_attempt_begins_while_an_earlier_one_writes(follow: Callable[..., Running], embedded: LocalLauncher, tmp_path: Path) -> None:
    key = "ffff0000000000e1"
    folder = tmp_path / "contract-20260101-000000-0000" / "trials" / key
    with elsewhere(folder, key) as earlier:
        before = (folder / "journal.jsonl").read_bytes()
        running = follow(embedded, key, retries=0, steps=5)  # attempt 1 is not charged
        result = running.end()
        assert running.folder == folder and earlier.poll() is None
    who = f"process {earlier.pid} on {os.uname().nodename} (attempt 1)"
    host, command = os.uname().nodename, f"`grep -lsz SWEEPBENCH_TRIAL={key} /proc/[0-9]*/environ`"
    said = f"earlier_attempt: {folder / 'journal.jsonl'}: {who} or a child of it still writes there after {ENDED_S:g} s"
    said += f", so no other attempt may; end them on {host}, where {command} lists them"
    assert (result.outcome, result.attempt, result.reason) == (Outcome.INFRA, 2, said)
    assert (folder / "journal.jsonl").read_bytes() == before and not (folder / "ray").exists(), "nothing was written beside it"


def test_an_attempt_goes_on_once_the_earlier_one_has_ended(follow: Callable[..., Running], embedded: LocalLauncher, tmp_path: Path) -> None:
    key = "ffff0000000000e2"
    folder, log = tmp_path / "contract-20260101-000000-0000" / "trials" / key, []
    with elsewhere(folder, key) as earlier:
        running = follow(embedded, key, retries=1, steps=5)
        who = f"process {earlier.pid} on {os.uname().nodename} (attempt 1)"
        waiting = f"{folder / 'journal.jsonl'}: waiting up to {ENDED_S:g} s for the end of {who}"
        running.until(lambda: (folder / "log.txt").exists() and waiting in (folder / "log.txt").read_text())
        log.append(read_journal(folder / "journal.jsonl").attempt)
        earlier.kill()
        result = running.end()
    assert log == [1] and (result.outcome, result.attempt) == (Outcome.OK, 2)
    journal = read_journal(folder / "journal.jsonl")
    waited = [note["text"] for note in journal.notes if note["text"].startswith("waited ")]
    assert len(waited) == 1 and waited[0].endswith(f" s for the end of {who}, which wrote here")
    assert (journal.attempt, len(journal.steps)) == (2, 7)
