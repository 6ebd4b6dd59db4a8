"""A sweep that is killed, told to end, stopped or started twice loses nothing and runs nothing twice (rows 7, 8, 15, 25)."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import processes
from cluster.lease import holder
from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.sweep.store import SweepStore
from tests.cli_support import DEADLINE_S, only_store, running_step, start, sweep, until
from tests.mlflow_support import all_runs, check_projection

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900), pytest.mark.usefixtures("mlflow_database")]


def journal_bytes(store: SweepStore, number: int) -> bytes:
    return (store.trial_dir(store.load_plan().trials[number].key) / "journal.jsonl").read_bytes()


def flow_states() -> list[str]:
    """States of all flow runs, oldest first, as Prefect's own database has them."""
    with sqlite3.connect(runs_root() / ".prefect" / "prefect.db") as database:
        return [row[0] for row in database.execute("select state_type from flow_run order by created")]


def no_process_left(store: SweepStore) -> bool:
    return all(processes.of_trial(trial.key) == [] for trial in store.load_plan().trials)


def test_row_7_and_15_kill_9_then_resume(tmp_path: Path, prefect_server: str) -> None:
    first = start("run", "one_of_three", folder=tmp_path)
    store = until(running_step(1), first)  # the first trial is done, the second on its way
    finished = journal_bytes(store, 0)
    os.kill(first.pid, signal.SIGSTOP)  # it is not to come to its end before it is killed, however long the next command takes to start

    # row 15: somebody else wants to work on it at the same time
    status, text = sweep("resume", "last", folder=tmp_path)
    assert status == 1
    assert f"is being worked on by process {first.pid}" in text

    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    assert flow_states() == ["RUNNING"]  # Prefect does not know

    status, text = sweep("resume", "last", folder=tmp_path)
    assert status == 0, text
    assert re.search(r"[12] of 3 trials are done", text)  # 2 where the one that was left running has ended
    assert flow_states() == ["CRASHED", "COMPLETED"]
    assert journal_bytes(store, 0) == finished  # what was done was not run again
    results = [store.result(trial.key) for trial in store.load_plan().trials]
    assert [result.outcome for result in results if result] == [Outcome.OK] * 3
    assert [result.attempt for result in results if result] == [1, 1, 1]  # and what ran on was followed, not repeated
    check_projection(store)
    assert no_process_left(store)

    # row 25: a figure is changed by hand
    trial = store.load_plan().trials[1]
    path = store.trial_dir(trial.key) / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if b'"kind":"step"' in line)
    lines[number] = lines[number].replace(b'"loss":', b'"loss":1', 1)
    path.write_bytes(b"".join(lines))
    before = path.read_bytes()
    status, text = sweep("report", "last", folder=tmp_path)
    assert status == 1 and f"left out: {path}, line {number + 1}: " in text, text
    assert path.read_bytes() == before
    status, text = with_another_resume_beside(store, prefect_server)
    assert status == 0 and f"{path}, line {number + 1}: " in text, text
    assert (path.parent / "damaged-a1" / "journal.jsonl").read_bytes() == before, "kept, and measured anew"
    result = store.result(trial.key)
    assert result is not None and (result.outcome, result.attempt) == (Outcome.OK, 2)
    check_projection(store)


def with_another_resume_beside(store: SweepStore, prefect: str) -> tuple[int, str]:
    """Start `sweep resume` twice at once, and give the end of the one with the lease, which waits for the end of the other.

    The other says that it has none, and nothing of how an earlier flow ended.
    """
    both = {process.pid: process for process in (start("resume", "last", folder=store.dir, PREFECT_API_URL=prefect) for _ in range(2))}
    has_it = both.pop(until(lambda: (by := holder(store.dir)) and by.pid in both and by.pid, None))
    os.kill(has_it.pid, signal.SIGSTOP)
    (other,) = both.values()
    text, _ = other.communicate(timeout=DEADLINE_S)
    by_whom = rf"(process {has_it.pid} on \S+|another process)"  # it may have the lease and not have written yet who it is
    assert other.returncode == 1 and re.search(f"is being worked on by {by_whom};", text), text
    assert "every trial ended as expected" not in text
    os.kill(has_it.pid, signal.SIGCONT)
    text, _ = has_it.communicate(timeout=DEADLINE_S)
    return has_it.returncode, text


def test_row_8_told_to_end_interrupted_and_stopped(tmp_path: Path, prefect_server: str) -> None:
    """What a signal ends has a Prefect server of its own, which must end with it; `sweep stop` and the end find one that stays."""
    own, stays = dict[str, str](), {"PREFECT_API_URL": prefect_server}

    def end_with(number: int) -> None:
        os.kill(process.pid, number)

    def end_by_command(_: int) -> None:
        status, text = sweep("stop", "last", "--reason", "enough for today", folder=tmp_path)
        assert status == 0, text

    begun = ["run", "one_of_three", "--only", "seed=1", "--only", "seed=2"]  # one under way each time, one not begun
    ways = (
        (end_with, signal.SIGTERM, "SIGTERM", own),
        (end_with, signal.SIGINT, "Ctrl-C", own),
        (end_by_command, 0, "enough for today", stays),
    )
    for attempt, (end, number, reason, server) in enumerate(ways, 1):
        process = start(*begun, folder=tmp_path, **server)
        store = until(running_step(0, attempt=attempt), process)
        end(number)
        text, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1, text
        assert no_process_left(store)
        runs = {run.data.tags["trial.attempt"]: run for run in all_runs(store.sweep_id)}
        last = runs[max(runs)]
        assert last.info.status == "KILLED"
        assert reason in last.data.tags["reason"]
        assert [run.info.status for run in all_runs(store.sweep_id, "parent")] == ["KILLED"]
        assert "sweep resume" in text
        begun = ["resume", "last"]
    store = only_store()
    assert store is not None
    status, text = sweep("resume", "last", folder=tmp_path, **stays)
    assert status == 0, text
    assert {result.outcome for trial in store.load_plan().trials if (result := store.result(trial.key))} == {Outcome.OK}
    check_projection(store)
    status, text = sweep("stop", "last", folder=tmp_path)
    assert status == 0 and "is not running" in text


@pytest.fixture
def deaf_prefect() -> Iterator[str]:
    """The URL of a Prefect server that says that it is well and answers nothing else: a flow waits for it and does not begin."""
    over = threading.Event()

    class Deaf(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/api/health":
                over.wait()
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            over.wait()

    with ThreadingHTTPServer(("127.0.0.1", 0), Deaf) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        over.set()
        server.shutdown()


def phases(store: SweepStore) -> list[str]:
    (trial,) = store.load_plan().trials
    return [phase["name"] for phase in read_journal(store.trial_dir(trial.key) / "journal.jsonl").phases]


def held_trial() -> SweepStore | None:
    """The sweep once its one trial was begun and waits for its flow."""
    store = only_store()
    return store if store is not None and phases(store) == ["imports", "hold"] else None


def test_a_damaged_mlflow_database_does_not_keep_a_stop_from_stopping(tmp_path: Path, deaf_prefect: str) -> None:
    """The flow is dead and its trial runs on: `sweep stop` ends it all the same, and says what is wrong."""
    killed = start("run", "one_of_three", "--only", "seed=1", "--set", "steps=5000", folder=tmp_path, PREFECT_API_URL=deaf_prefect)
    store = until(held_trial, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    (trial,) = store.load_plan().trials
    until(lambda: len(read_journal(store.trial_dir(trial.key) / "journal.jsonl").steps) >= 3, None)
    database = runs_root() / "mlflow.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database" + bytes(4096))
    status, text = sweep("stop", "last", "--reason", "enough", folder=tmp_path)
    assert status == 1 and "Traceback" not in text, text
    assert "its process was dead; stopped 1 trial(s)" in text
    assert re.search(rf"MLflow was not told: .*not a database.*; `sweep resume {store.sweep_id}` tells it once it can be written", text), (
        text
    )
    assert no_process_left(store)
    result = store.result(trial.key)
    assert result is not None and (result.outcome, result.reason) == (Outcome.CANCELLED, "enough")

    database.write_bytes(whole)
    status, text = sweep("stop", "last", folder=tmp_path)
    assert status == 0 and "is not running" in text, text


def test_killed_or_interrupted_between_the_first_launch_and_the_flow(tmp_path: Path, deaf_prefect: str) -> None:
    begun = ["run", "one_of_three", "--only", "seed=1"]
    interrupted = start(*begun, folder=tmp_path, PREFECT_API_URL=deaf_prefect)
    store = until(held_trial, interrupted)
    os.kill(interrupted.pid, signal.SIGINT)
    text, _ = interrupted.communicate(timeout=DEADLINE_S)
    (trial,) = store.load_plan().trials
    result = store.result(trial.key)
    assert (interrupted.returncode, result and result.outcome) == (1, Outcome.CANCELLED), text
    assert no_process_left(store) and f"sweep resume {store.sweep_id}" in text

    killed = start("resume", "last", folder=tmp_path, PREFECT_API_URL=deaf_prefect)
    until(lambda: phases(store) == ["imports", "hold"] and read_journal(store.trial_dir(trial.key) / "journal.jsonl").attempt == 2, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    (store.trial_dir(trial.key) / "launch.json").unlink()  # as if it had died before it wrote it: the journal leads to the trial

    status, text = sweep("resume", "last", folder=tmp_path)
    assert status == 0, text
    result = store.result(trial.key)
    assert result is not None and (result.outcome, result.attempt) == (Outcome.OK, 2)  # it ran on by itself, and not twice
    assert phases(store)[:3] == ["imports", "hold", "start"]
    assert flow_states() == ["COMPLETED"]
    check_projection(store)
    assert no_process_left(store)

    status, text = sweep("resume", "last", folder=tmp_path)
    assert status == 0 and "nothing to do" in text, text
    assert flow_states() == ["COMPLETED"]  # no further one
