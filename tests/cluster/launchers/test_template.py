"""Trials forked from a template process: marked, apart from each other and from the template, and outliving whoever started them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cluster.launchers import Launch, processes, template
from cluster.launchers.local import LocalLauncher
from cluster.launchers.template import Template, TemplateCache, TemplateError
from cluster.launchers.variant import Variant
from cluster.pools.pool import Pool
from cluster.process_marks import MARK, NO_TRIAL
from cluster.process_variables import variables
from cluster.worker import template as template_process
from cluster.worker import template_imports
from cluster.worker.fork_server import ForkServer
from experiments.components import flop_count
from experiments.trial import Outcome, Trial
from tests.contracts import make_trial, result_of
from tests.process_support import command_of
from tests.python_support import run

POOL = Pool(name="cpu", device="cpu", address="embedded")
# Their processes are looked for on the whole machine, where another run of these tests may be
FIRST, SECOND, LONG = (secrets.token_hex(8) for _ in range(3))
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher(POOL)
    yield made
    for key in (FIRST, SECOND, LONG):
        processes.end_all(key)
    made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.01)


def long_trial(folder: Path) -> Trial:
    """One that runs until it is ended."""
    trial = make_trial(folder, LONG)
    trial = trial.model_copy(update={"parameters": {**trial.parameters, "steps": 1_000_000}})
    (folder / "trial.json").write_text(trial.model_dump_json())
    return trial


def template_of(launch: Launch) -> psutil.Process:
    parent = psutil.Process(int(launch.id)).parent()
    assert parent is not None and "cluster.worker.template" in command_of(parent)
    return parent


def test_trials_are_forked_found_by_their_marks_and_outlive_their_template(launcher: LocalLauncher, tmp_path: Path) -> None:
    """In one test, and so of one template: each takes seconds of CPU time to make its imports."""
    prepared = launcher.prepare(long_trial(tmp_path), tmp_path)
    assert prepared is not None
    prepared.wait_until_ready()
    for key in (FIRST, SECOND):
        folder = tmp_path / key
        launch = launcher.start(make_trial(folder, key), folder, 1)
        until(lambda launch=launch: not launcher.status(launch).running)
        assert launcher.status(launch).exit_code == 0, launcher.log(launch, folder)
        result = result_of(folder)
        assert (result.outcome, result.environment["start"]) == (Outcome.OK, "warm")
        launcher.stop(launch)
        assert not processes.of_trial(key)
    launch = launcher.start(long_trial(tmp_path), tmp_path, 1)
    pid = int(launch.id)
    assert [found.pid for found in processes.of_trial(LONG)] == [pid]
    assert os.getsid(pid) == pid != os.getsid(template_of(launch).pid), "it survives its template: a session of its own"
    assert variables(template_of(launch))[MARK] == NO_TRIAL and template_of(launch).pid == prepared._process.pid
    assert launch.born == psutil.Process(pid).create_time()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not launcher.status(launch).running)
    assert (launcher.status(launch).exit_code, launcher.status(launch).message) == (-9, "killed by SIGKILL")
    launcher.stop(launch)
    outlives_its_template_and_can_be_stopped(launcher, tmp_path)


def outlives_its_template_and_can_be_stopped(launcher: LocalLauncher, tmp_path: Path) -> None:
    launch = launcher.start(long_trial(tmp_path), tmp_path, 2)
    parent = template_of(launch)
    parent.kill()
    parent.wait(60)
    until(lambda: not launcher._children[LONG].template.running)  # type: ignore[union-attr]
    assert launcher.status(launch).running
    launcher.stop(launch)
    assert not launcher.status(launch).running and not processes.of_trial(LONG)


def test_a_template_ends_once_its_launcher_is_gone_and_its_trial_over(launcher: LocalLauncher, tmp_path: Path) -> None:
    launch = launcher.start(long_trial(tmp_path), tmp_path, 1)
    parent = template_of(launch)
    launcher.close()
    assert psutil.Process(int(launch.id)).is_running() and parent.is_running()
    LocalLauncher(POOL).stop(launch)  # another flow's
    until(lambda: not processes.alive(parent.pid, parent.create_time() if parent.is_running() else None))


def test_a_template_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could fork the trial later, while a fresh process runs it."""
    monkeypatch.setattr(template, "READY_S", 0.0)
    silent = Template(sys.executable, "synthetic", dict(os.environ), tmp_path / "log")
    with pytest.raises(TemplateError, match="does not answer: no answer within 0 s"):
        silent.fork([], {MARK: FIRST}, tmp_path / "log")
    until(lambda: not silent.running)
    monkeypatch.setattr(template, "READY_S", 120.0)
    with pytest.raises(TemplateError, match="does not answer: it has ended with exit status -9"):
        silent.wait_until_ready()


def test_a_pool_may_ask_for_fresh_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TemplateCache, "get", lambda *arguments: pytest.fail("it asked for a template"))
    launcher = LocalLauncher(POOL.model_copy(update={"start": "fresh"}))
    assert launcher.prepare(long_trial(tmp_path), tmp_path) is None
    launch = launcher.start(long_trial(tmp_path), tmp_path, 1)
    assert psutil.Process(int(launch.id)).ppid() == os.getpid()
    launcher.stop(launch)


class Named:
    """A template that was asked for; it starts nothing."""

    running = True

    def __init__(
        self, python: str, workload: str, environment: dict[str, str], log: Path, inherited: tuple[int, ...], left_out: list[str]
    ) -> None:
        self.environment, self.closed = environment, False
        self.left_out, self.half_imported = left_out, list[str]()
        self.learnt, self.told = list[str](), list[str]()

    def tell(self, modules: list[str]) -> None:
        self.told = modules

    def close(self) -> None:
        self.closed = True


class Spoiled(Named):
    def fork(self, *arguments: object) -> None:
        raise TemplateError("an import has started a thread (pool)")


def test_without_a_template_a_trial_starts_afresh(launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "Template", Spoiled)
    launch = launcher.start(make_trial(tmp_path, FIRST), tmp_path, 1)
    until(lambda: not launcher.status(launch).running)
    assert result_of(tmp_path).environment["start"] == "fresh"
    assert "none could be forked from the template: an import has started a thread (pool)" in launcher.log(launch, tmp_path)


def test_a_template_serves_trials_that_import_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "Template", Named)
    trial, cache = make_trial(tmp_path, FIRST), TemplateCache()
    first = cache.get(Variant("python"), trial, {"HF_HUB_OFFLINE": "1", MARK: FIRST}, tmp_path / "log")
    assert first.environment["HF_HUB_OFFLINE"] == "1" and first.environment["CUDA_VISIBLE_DEVICES"] == "" and MARK not in first.environment
    monkeypatch.setenv("PREFECT_PROFILE", "other")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    assert cache.get(Variant("python"), trial, {"HF_HUB_OFFLINE": "1", MARK: SECOND}, tmp_path / "log") is first
    other, seen = trial.model_copy(update={"workload": "canary"}), [first]
    for python, changed, given in (("python3", trial, {"HF_HUB_OFFLINE": "1"}), ("python3", other, {"A": "1"}), ("python3", other, {})):
        seen.append(cache.get(Variant(python), changed, given, tmp_path / "log"))
    assert len({id(one) for one in seen}) == 4
    monkeypatch.setattr(template, "_code_state", lambda root: [("worker.py", 1)])
    assert cache.get(Variant("python3"), other, {}, tmp_path / "log") is not seen[-1] and seen[-1].closed


def test_environments_in_turns_keep_their_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "Template", Named)
    trial, cache = make_trial(tmp_path, FIRST), TemplateCache()

    def get(python: str) -> Named:
        return cache.get(Variant(python), trial, {}, tmp_path / "log")  # type: ignore[return-value]

    a, b = get("a"), get("b")
    assert (get("b"), get("a")) == (a, b)[::-1] and not a.closed and not b.closed
    c = get("c")
    d = get("d")  # one more than are kept: b was used longest ago
    assert (a.closed, b.closed, c.closed, d.closed) == (False, True, False, False)
    cache.drop(c)  # type: ignore[arg-type]
    assert c.closed and not d.closed and get("a") is a
    cache.close()
    assert a.closed and d.closed and get("a") is not a


def test_a_template_is_told_what_others_have_learnt_also_those_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "Template", Named)
    trial, cache = make_trial(tmp_path, FIRST), TemplateCache()

    def get(workload: str) -> Named:
        return cache.get(Variant("python"), trial.model_copy(update={"workload": workload}), {}, tmp_path / "log")  # type: ignore[return-value]

    first, second = get("bert"), get("t5")
    first.learnt = ["torch._inductor.scheduler", "networkx"]
    assert get("t5").told == ["torch._inductor.scheduler", "networkx"] and first.told == [], "it would disturb a trial of another"
    cache.drop(first)  # type: ignore[arg-type]
    second.learnt = ["sympy", "networkx", "filelock"]
    locked: list[bool] = []
    monkeypatch.setattr(Named, "tell", lambda self, modules: (locked.append(cache._lock.locked()), self.told.extend(modules)))
    assert get("vit").told == ["torch._inductor.scheduler", "networkx", "sympy", "filelock"], "in the order in which they were imported"
    assert locked == [False], "it may be forking, and trials of others need not wait for that"


def test_a_template_of_a_commit_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code may take the request for a trial's, refuse it, and then fork the trial beside the fresh process that takes its place."""
    monkeypatch.setattr(template, "Template", Named)
    trial, cache = make_trial(tmp_path, FIRST), TemplateCache()
    cache.get(Variant("here"), trial, {}, tmp_path / "log").learnt.append("sympy")
    of_commit = cache.get(Variant("python", tmp_path), trial, {}, tmp_path / "log")
    same_code = cache.get(Variant("python3"), trial, {}, tmp_path / "log")
    assert (of_commit.told, same_code.told) == ([], ["sympy"])  # type: ignore[attr-defined]


def test_what_one_template_imported_half_way_no_later_one_is_taught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first trial would teach it the same again, and every second trial would be a fresh process."""
    monkeypatch.setattr(template, "Template", Named)
    trial, cache = make_trial(tmp_path, FIRST), TemplateCache()

    def get(**variant: Any) -> Named:
        return cache.get(Variant(**{"python": "python", **variant}), trial, {}, tmp_path / "log")  # type: ignore[return-value]

    first = get()
    first.learnt, first.half_imported = ["sympy", "circular.kernel"], ["circular.entry", "circular.kernel"]
    assert (first.left_out, get()) == ([], first)
    cache.drop(first)  # type: ignore[arg-type]
    cache.drop(None)
    second = get()
    assert second is not first and (second.left_out, second.told) == (["circular.entry", "circular.kernel"], ["sympy"])
    second.half_imported = ["circular.lowering"]
    cache.drop(second)  # type: ignore[arg-type]
    assert get().left_out == ["circular.entry", "circular.kernel", "circular.lowering"]
    assert get(python="python3", tree=tmp_path).left_out == [], "the code of an earlier commit would end at such an argument"


def test_a_template_that_forks_no_more_says_what_it_imported_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_imports, "_half_imported", {"circular.entry": "circular.entry was imported half-way (KeyError: 1)"})
    monkeypatch.setattr(template_imports.threading, "active_count", lambda: 1)  # other tests' libraries leave threads in this process
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(template.socket, "socketpair", lambda: (ours, theirs.dup()))
    monkeypatch.setattr(template.subprocess, "Popen", lambda *_, **__: SimpleNamespace(poll=lambda: None))
    one = Template(sys.executable, "bert", {}, tmp_path / "log")
    monkeypatch.setattr(one, "_ready", True)
    server = ForkServer()
    server.serve_launcher(theirs)
    (connection,) = server._connections
    server._start(connection, {})
    with pytest.raises(TemplateError, match=r"^circular.entry was imported half-way \(KeyError: 1\)$"):
        one.fork([], {}, tmp_path / "log")
    assert one.half_imported == ["circular.entry"]
    theirs.close()


def test_a_template_leaves_out_what_it_is_told_before_it_imports_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(template.subprocess, "Popen", lambda arguments, **_: (started.append(arguments), SimpleNamespace(poll=lambda: 0))[1])
        for names in ([], ["circular.entry", "circular.kernel"]):
            Template("python", "bert", {}, tmp_path / "log", left_out=names).close()
    done: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(template_process, "ForkServer", lambda: SimpleNamespace(serve_launcher=lambda channel: None, run=lambda: None))
    monkeypatch.setattr(template_process.socket, "socket", lambda fileno: None)
    monkeypatch.setattr(template_process, "leave_out", lambda names: done.append(("leave out", names)))
    monkeypatch.setattr(template_process, "import_modules", lambda names: done.append(("import", names[-1:])))
    for arguments in started:
        monkeypatch.setattr(sys, "argv", arguments[2:])
        template_process.main()
    imported = ("import", ["experiments.workloads.bert"])
    assert done == [("leave out", []), imported, ("leave out", ["circular.entry", "circular.kernel"]), imported]


def test_what_one_template_learns_another_imports_before_its_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("of_a_compiler", "of_the_other"):
        (tmp_path / f"{name}.py").write_text("")
    imported: list[bool] = []
    ours, theirs = socket.socketpair()
    server = ForkServer()
    server.serve_launcher(theirs)
    (connection,) = server._connections
    monkeypatch.setattr(server, "_start", lambda _, request: imported.append("of_the_other" in sys.modules))
    ours.sendall(b'{"import": ["of_the_other"]}\n{"log": "first"}\n')
    server._read(connection)
    assert imported == [True], "not beside the trial, which it would disturb"
    server._teach(["of_a_compiler", "made_by_a_trial"], {})
    server._read_lessons()
    server._learn()
    assert "of_a_compiler" in sys.modules
    assert json.loads(ours.recv(1000)) == {"learnt": ["of_a_compiler"]}
    ours.close()


def test_a_template_says_what_others_can_use_and_is_told_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "READY_S", 60.0)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(template.socket, "socketpair", lambda: (ours, theirs.dup()))
    monkeypatch.setattr(template.subprocess, "Popen", lambda *_, **__: SimpleNamespace(poll=lambda: None, kill=lambda: killed.append(True)))
    killed: list[bool] = []
    one = Template(sys.executable, "bert", {}, tmp_path / "log")
    names = ["torch._inductor.scheduler", "experiments.workloads.bert", "transformers.models.bert.modeling_bert", "diffusers.models"]
    theirs.sendall(json.dumps({"learnt": names}).encode() + b"\n")
    one._receive(1.0)
    assert one.learnt == ["torch._inductor.scheduler"]
    before = one._learnt
    theirs.sendall(b'{"learnt": ["triton.runtime"]}\n')
    one._receive(1.0)
    assert (list(before), one.learnt) == (names, ["torch._inductor.scheduler", "triton.runtime"]), "another thread may go through the first"
    one.tell(["torch._inductor.scheduler", "sympy"])
    one.tell(["triton", "sympy", "networkx"])
    assert theirs.recv(1000) == b'{"import": ["sympy"]}\n{"import": ["triton", "networkx"]}\n'
    one.tell(["sympy"])
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    theirs.close()
    ours.close()
    one.tell(["another"])
    assert killed == [True], "half a request would be taken for the beginning of the next"


def test_a_mark_takes_the_place_of_the_one_the_process_started_with() -> None:
    code = f"""
import json, os, subprocess, sys
from cluster.process_marks import mark_forked_process
if os.fork() == 0:
    mark_forked_process({FIRST!r})
    seen = dict(part.split("=", 1) for part in open("/proc/self/environ").read().split(chr(0)) if part)
    child = subprocess.run(["/bin/sh", "-c", "echo ${MARK}"], capture_output=True, text=True).stdout.strip()
    print(json.dumps([seen[{MARK!r}], child, seen["LAST"]]), flush=True)
    os._exit(0)
os.wait()
"""
    assert json.loads("".join(run(code, **{MARK: NO_TRIAL, "LAST": "as it was"}))) == [FIRST, FIRST, "as it was"]


def test_a_process_without_room_for_a_mark_says_so() -> None:
    code = f"""
from cluster.process_marks import MarkError, mark_forked_process
try:
    mark_forked_process({FIRST!r})
except MarkError as error:
    print(error)
"""
    assert run(code, **{MARK: "other"})[-1].endswith(f"has no room for the mark {FIRST}")


def test_a_request_of_a_launcher_that_has_died_since_is_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another flow may have started that trial meanwhile."""
    for alive, started in ((False, []), (True, ["first"])):
        ours, theirs = socket.socketpair()
        server, asked = ForkServer(), list[str]()
        monkeypatch.setattr(server, "_start", lambda _, request, asked=asked: asked.append(request["log"]))
        server.serve_launcher(theirs)
        ours.sendall(b'{"log": "first"}\n')
        if not alive:
            ours.close()
        (connection,) = server._connections
        server._read(connection)
        assert asked == started
        ours.close()
        theirs.close()


def test_a_template_learns_modules_and_flops_from_trials_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flop_count, "_known", {"known": 1.0})
    server = ForkServer()
    server._teach([], {})
    server._teach(["json.tool"], {"counted": 2.0})
    server._children[os.getpid()] = object()  # type: ignore[assignment]
    server._read_lessons()
    server._learn()
    assert flop_count.known_counts() == {"known": 1.0}, "imports take seconds: the trial's end is told before"
    server._children.clear()
    server._learn()
    server._learn()
    assert flop_count.known_counts() == {"known": 1.0, "counted": 2.0}
    assert "json.tool" in sys.modules
