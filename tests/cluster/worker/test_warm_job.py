"""A Ray job's process whose trial is forked from the node's template, under a process that stands for Ray's: a shell named raylet."""

from __future__ import annotations

import json
import os
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import processes
from cluster.process_marks import MARK, NO_TRIAL, POOL_MARK
from cluster.process_variables import variables
from cluster.worker import leftovers, node_socket, warm_job
from experiments.trial import Outcome
from tests.contracts import make_trial, result_of
from tests.process_support import commands_of

pytestmark = pytest.mark.timeout(240)
ENDLESS = 1_000_000  # steps
# What is looked for on the whole machine, where another run of these tests may be: trials by their keys, leftovers by their pool
RUN = secrets.token_hex(6)
POOL = f"unit-test-of-warm-jobs-{RUN}"


def key_of(number: int) -> str:
    """A trial's key that no other run of these tests has."""
    return f"{RUN}{number:04}"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.01)


@dataclass
class Job:
    """A job's process, started as Ray's supervisor does: by a shell, with its output in a file."""

    key: str
    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def exit_code(self) -> int:
        until((self.folder / "exit").exists)
        return int((self.folder / "exit").read_text())

    def process(self, module: str) -> psutil.Process:
        """Its process that runs the module: cluster.worker.warm_job, or cluster.worker.template for the forked trial."""
        found: list[psutil.Process] = []

        def there() -> list[psutil.Process]:
            found[:] = [process for process, command in commands_of(self.key).items() if module in command]
            return found

        until(there)
        return found[0]

    def until_step(self) -> None:
        until(lambda: len(read_journal(self.folder / "journal.jsonl").steps) > 1)


class Node:
    """A shell named raylet that runs jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "raylet"
        program.symlink_to("/bin/sh")
        variables = {**os.environ, "SWEEPBENCH_STACK": "unit-test"}  # tests/conftest.py leaves it, and the template, to its fixture
        self.shell = subprocess.Popen([program], stdin=subprocess.PIPE, text=True, env=variables)

    def run(self, command: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(f"{command}\n")
        self.shell.stdin.flush()

    def job(self, key: str, *, template: str = "t", workload: str = "synthetic", **parameters: object) -> Job:
        folder = self.folder / key
        make_trial(folder, key, workload, **parameters)
        arguments = ["--template", template, "--workload", workload, "--"]
        arguments += ["--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", "1"]
        command = shlex.join([sys.executable, "-m", "cluster.worker.warm_job", *arguments])
        variables = f"{MARK}={key} {POOL_MARK}={POOL} SWEEPBENCH_IMAGE={key}"
        written = shlex.quote(str(folder / "exit"))
        ended = f"echo $? > {written}.new; mv {written}.new {written}"
        job = f"{variables} {command} >> {shlex.quote(str(folder / 'output'))} 2>&1; {ended}"
        self.run(shlex.join(["/bin/sh", "-c", job]) + " &")  # in a subshell it would seem to descend from another raylet
        return Job(key, folder)

    def template(self, key: str = "t") -> psutil.Process | None:
        """The template process of that key; None without one."""
        try:
            with node_socket.connect(node_socket.address(key, self.shell.pid)) as channel:
                return psutil.Process(node_socket.peer(channel).pid)
        except OSError:
            return None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    yield made
    template = made.template()
    assert template is not None and variables(template)[MARK] == NO_TRIAL
    made.shell.kill()
    made.shell.communicate()
    template.wait(60)  # it ends with Ray, though nobody tells it to


def test_jobs_of_a_node_share_a_template_and_write_to_their_own_output(node: Node) -> None:
    for key in (key_of(1), key_of(2)):
        job = node.job(key)
        assert job.exit_code == 0, job.output
        result = result_of(job.folder)
        assert (result.outcome, result.environment["start"]) == (Outcome.OK, "warm"), job.output
        assert result.environment["image"] == key, "its job's environment, not the template's"
        assert "Running in local mode" in job.output  # the trial's own words
        assert ("starting a template process" in job.output) == (key == key_of(1))
        assert processes.of_trial(key) == []


def test_a_template_serves_two_jobs_at_once_and_neither_is_a_leftover(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (node.job(key_of(number), steps=ENDLESS) for number in (11, 12))
    first.until_step()
    second.until_step()
    trials = [job.process("cluster.worker.template") for job in (first, second)]
    assert trials[0].ppid() == trials[1].ppid() == node.template().pid  # type: ignore[union-attr]
    variables = {**os.environ, MARK: key_of(13), POOL_MARK: POOL}
    orphan = subprocess.Popen(["sleep", "600"], env=variables)
    monkeypatch.setenv(POOL_MARK, POOL)
    notes = leftovers.end()
    orphan.wait(60)
    assert notes == [f"ended process {orphan.pid} (sleep 600), which trial {key_of(13)} had left on this node"]
    for job in (first, second):
        job.process("cluster.worker.warm_job").terminate()
        assert job.exit_code == 0, job.output
        assert (result_of(job.folder).outcome, result_of(job.folder).reason) == (Outcome.CANCELLED, "told to end (SIGTERM)")


def test_a_trial_ends_with_its_job(node: Node) -> None:
    job = node.job(key_of(21), steps=ENDLESS)
    job.until_step()
    job.process("cluster.worker.warm_job").kill()
    until(lambda: processes.of_trial(job.key) == [])
    assert job.exit_code == 128 + signal.SIGKILL
    assert not (job.folder / "result.json").exists()


def test_a_job_ends_as_its_trial_did(node: Node) -> None:
    job = node.job(key_of(31), steps=ENDLESS)
    job.until_step()
    job.process("cluster.worker.template").send_signal(signal.SIGSEGV)
    assert job.exit_code == 128 + signal.SIGSEGV


def test_a_template_that_is_killed_takes_its_trial_with_it_and_the_next_job_starts_another(node: Node) -> None:
    job = node.job(key_of(41), steps=ENDLESS)
    job.until_step()
    template = node.template()
    assert template is not None
    template.kill()
    assert job.exit_code == 128 + signal.SIGKILL
    assert job.output.endswith("the template process was ended, and its trial with it\n")
    assert processes.of_trial(job.key) == []
    again = node.job(key_of(42))
    assert again.exit_code == 0, again.output
    assert result_of(again.folder).environment["start"] == "warm"
    assert node.template() not in (None, template)


@contextmanager
def stand_in(name: str, then: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a template's place, which takes a request and then runs the code `then`."""
    code = f"""
import time
from cluster.worker import node_socket
listener = node_socket.listen({name!r})
print("listens", flush=True)
channel, _ = listener.accept()
{then}
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "listens\n"
        yield process
        process.kill()


def test_a_job_whose_template_refuses_becomes_the_trial(node: Node) -> None:
    reply = """channel.recv(1 << 20); channel.sendall(b'{"failed": "an import has started a thread (pool)"}\\n')"""
    with stand_in(node_socket.address("refuses", node.shell.pid), reply):
        job = node.job(key_of(51), template="refuses")
        assert job.exit_code == 0, job.output
    assert "a fresh process, since none could be forked from the template: an import has started a thread (pool)\n" in job.output
    assert result_of(job.folder).environment["start"] == "fresh"


def test_a_template_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could fork the trial later, while a fresh process runs it."""
    monkeypatch.setattr(warm_job, "READY_S", 0.05)
    with stand_in(f"\0sweepbench-unit-test-{RUN}", "") as silent:
        with pytest.raises(warm_job.NoTemplate, match="the template process does not answer: timed out"):
            warm_job.ForkedTrial(node_socket.connect(f"\0sweepbench-unit-test-{RUN}"), [])
        assert silent.wait(60) == -signal.SIGKILL


def test_a_job_outlives_the_trial_of_a_template_that_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template's sockets are closed before the kernel kills its trials, and those take a while to end."""
    ours, theirs = socket.socketpair()
    trial = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert trial.stdin is not None

    class Ends:
        """The trial ends once it is waited for."""

        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
            assert trial.poll() is None and trial.stdin is not None
            trial.stdin.close()
            return self._poll.poll(timeout_ms)

    monkeypatch.setattr(warm_job, "select", SimpleNamespace(poll=Ends, POLLIN=select.POLLIN))
    try:
        theirs.sendall(json.dumps({"started": trial.pid}).encode() + b"\n")
        forked = warm_job.ForkedTrial(ours, [])
        theirs.close()
        assert forked.wait() == 128 + signal.SIGKILL
        assert trial.poll() == 0, "the job ended after it"
    finally:
        ours.close()
        trial.kill()
        trial.communicate()


def test_without_ray_there_is_no_template() -> None:
    with pytest.raises(warm_job.NoTemplate, match="this process was not started by Ray"):
        warm_job.template("t", "synthetic")


def test_a_template_of_another_user_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with node_socket.listen(f"\0sweepbench-unit-test-{RUN}") as listener:
        with node_socket.connect(f"\0sweepbench-unit-test-{RUN}"):
            assert node_socket.peer(listener.accept()[0]) == (os.getpid(), os.geteuid(), os.getegid())
        monkeypatch.setattr(node_socket, "peer", lambda channel: node_socket.Peer(1, os.geteuid() + 1, 0))
        with pytest.raises(PermissionError, match="another user listens on its socket"):
            node_socket.connect(f"\0sweepbench-unit-test-{RUN}")
