"""The launcher's side of a template process (cluster/worker/template.py): start it, have it fork trials, learn how they ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.launchers import processes
from cluster.launchers.variant import Variant
from cluster.process_marks import MARK, NO_TRIAL
from experiments.config.paths import REPOSITORY, extra_folders
from experiments.trial import Trial, digest

READY_S = 120.0  # imports on a slow disk may take so long
FORK_S = 60.0  # it may be importing what the last trial taught it
MOST = 3  # templates kept at a time, each with torch in memory: some 300 MB
_POLL_S = 0.02
_OF_ONE_WORKLOAD = ("experiments.", "transformers.models.", "diffusers.")  # modules that trials of others have no use for
_OF_THE_FLOW = ("MLFLOW_", "PREFECT_")  # variables that the flow's libraries set while it runs; a trial uses neither


class TemplateError(Exception):
    """No trial could be forked. A fresh process can be started instead."""


@dataclass(frozen=True)
class ForkedTrial:
    """A trial's process. It has the methods of subprocess.Popen that the launcher needs."""

    pid: int
    born: float | None
    template: Template

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self.template.exit_code(self)

    def wait(self, timeout: float) -> int:
        """Its exit status once it has ended. Raises subprocess.TimeoutExpired after `timeout` s."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(_POLL_S)
        return code


class Template:
    """One template process. Its methods may be called from several threads."""

    def __init__(
        self,
        python: str,
        workload: str,
        environment: Mapping[str, str],
        log: Path,
        inherited: Sequence[int] = (),
        left_out: Sequence[str] = (),
    ) -> None:
        """Start the process, which needs some seconds until it can fork. `log`: where its own output goes; `inherited`: descriptors that
        its trials inherit; `left_out`: modules that it is not to import. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs, open(log, "ab") as output:
            arguments = [python, "-m", "cluster.worker.template", "--channel", str(theirs.fileno()), "--workload", workload]
            arguments += ["--leave-out", *left_out] if left_out else []
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, MARK: NO_TRIAL, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},  # the check must not initialise CUDA
                pass_fds=[theirs.fileno(), *inherited],
                start_new_session=True,
            )
        self._channel, self._lock, self._buffer, self._ready = ours, threading.Lock(), b"", False
        self._codes: dict[int, int] = {}
        self._learnt, self._told = dict[str, None](), set[str]()
        self.half_imported = list[str]()  # modules for whose sake it forks no more
        self._close = weakref.finalize(self, _end, ours, self._process)

    def close(self) -> None:
        """Let the process end, at once or after its last trial."""
        self._close()

    def wait_until_ready(self) -> None:
        """Return once it has made its imports and can fork. Raises TemplateError."""
        with self._lock:
            try:
                self._await_ready()
            except OSError as error:
                raise TemplateError(f"the template process does not answer: {error}") from error

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedTrial:
        """Start a trial's process. `arguments`: of its entry point. Raises TemplateError."""
        request = {"arguments": list(arguments), "environment": dict(environment), "log": str(log.resolve())}
        with self._lock:
            try:
                self._await_ready()
                self._channel.sendall(json.dumps(request).encode() + b"\n")
                pid = int(self._answer("started", FORK_S))
            except OSError as error:
                self._process.kill()  # it must not fork this trial later, beside the fresh process that takes its place
                raise TemplateError(f"the template process does not answer: {error}") from error
        return ForkedTrial(pid, processes.start_time(pid), self)

    @property
    def learnt(self) -> list[str]:
        """Modules that its trials had to import, and those of other workloads may have to: compilers, for example. In that order."""
        return [name for name in self._learnt if not name.startswith(_OF_ONE_WORKLOAD)]

    def tell(self, modules: Sequence[str]) -> None:
        """Have it import what trials of other templates needed, in this order, before its next trial. It is ended where it does not take
        the names."""
        with self._lock:
            if not (new := [name for name in modules if name not in self._learnt and name not in self._told]):
                return
            self._told |= set(modules)
            try:
                self._channel.settimeout(FORK_S)
                self._channel.sendall(json.dumps({"import": new}).encode() + b"\n")
            except OSError:  # what it has read of this would be taken for the beginning of the next request
                self._process.kill()

    def exit_code(self, trial: ForkedTrial) -> int | None:
        """The exit status of one of its trials; None while it runs, or if this process has ended and did not see the trial's end."""
        with self._lock:
            self._receive(0.0)
            return self._codes.get(trial.pid)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def _await_ready(self) -> None:
        """Raises TemplateError for a refusal, TimeoutError, and OSError for a lost connection."""
        if not self._ready:
            self._answer("ready", READY_S)
            self._ready = True

    def _answer(self, word: str, timeout_s: float) -> Any:
        """The value of the next reply of that name. Raises TemplateError for a refusal, TimeoutError, and OSError for a lost connection."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for message in self._receive(max(0.001, deadline - time.monotonic())):
                if "failed" in message:
                    self.half_imported = message.get("half_imported", [])  # none where the code is that of an earlier commit
                    raise TemplateError(str(message["failed"]).strip())
                if word in message:
                    return message[word]
        raise TimeoutError(f"no answer within {timeout_s:g} s")

    def _receive(self, timeout_s: float) -> list[dict[str, Any]]:
        """Replies that have come, waiting up to `timeout_s` for the first. Keeps the ends of trials. Raises OSError if it is gone."""
        self._channel.settimeout(timeout_s)
        try:
            data = self._channel.recv(65536)
        except (BlockingIOError, TimeoutError):
            return []
        if not data:
            if timeout_s:
                raise ConnectionError(f"it has ended with exit status {self._process.wait()}")
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        if new := {name: None for message in messages for name in message.get("learnt", ())}:
            self._learnt = self._learnt | new  # another dict: another thread may go through that one, see `learnt`
        self._codes |= {int(message["ended"]): int(message["code"]) for message in messages if "ended" in message}
        return messages


def _end(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    process.poll()


@dataclass(frozen=True)
class _Kept:
    template: Template
    code: str  # digest of the code that it has imported


class TemplateCache:
    """The templates used last: trials of a sweep on a pool need one for each of its workloads, environments and commits."""

    def __init__(self) -> None:
        self._lock, self._kept = threading.Lock(), dict[str, _Kept]()  # the one used last stands last
        self._learnt = dict[str, None]()  # by any of them, also those that are gone, in the order in which they were imported
        self._left_out = dict[str, None]()  # what one of them imported half-way: the next one would learn it from its first trial again

    def get(self, variant: Variant, trial: Trial, environment: Mapping[str, str], log: Path) -> Template:
        """A template for this trial, started if need be: one with the same Python, workload, variables and code. Raises OSError."""
        shared = {
            name: value for name, value in {**os.environ, **environment}.items() if name != MARK and not name.startswith(_OF_THE_FLOW)
        }
        if trial.device == "cpu":
            shared["CUDA_VISIBLE_DEVICES"] = ""
        key, code = digest([variant.python, trial.workload, shared]), digest(_code_state(variant.tree or REPOSITORY))
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is None or kept.code != code or not kept.template.running:
                if kept is not None:
                    kept.template.close()
                    if kept.code != code:
                        self._left_out.clear()  # what failed may be mended
                left_out = list(self._left_out) if variant.tree is None else []  # an earlier commit's template knows no such argument
                kept = _Kept(Template(variant.python, trial.workload, shared, log, variant.inherited, left_out), code)
            self._kept[key] = kept
            while len(self._kept) > MOST:
                self._kept.pop(next(iter(self._kept))).template.close()
            for one in self._kept.values():
                self._learnt.update(dict.fromkeys(one.template.learnt))
            learnt = [name for name in self._learnt if name not in self._left_out]
        if variant.tree is None:  # an earlier commit's template knows no such request, and would take it for a trial's
            kept.template.tell(learnt)  # without the lock: it may be forking, which takes seconds
        return kept.template

    def drop(self, template: Template | None) -> None:
        """Let this template end: the next trial gets a new one, which does not import what this one could import only half-way."""
        with self._lock:
            self._left_out.update(dict.fromkeys(template.half_imported if template else ()))
            for key in [key for key, kept in self._kept.items() if kept.template is template]:
                self._kept.pop(key).template.close()

    def close(self) -> None:
        """Let all of them end."""
        with self._lock:
            while self._kept:
                self._kept.popitem()[1].template.close()


_shared: TemplateCache | None = None


@contextmanager
def shared_templates() -> Iterator[TemplateCache]:
    """Inside the block all launchers of this process fork from the same templates: sweeps that follow one another start them once.

    They end with the outermost block.
    """
    global _shared  # noqa: PLW0603 - launchers are made in several threads, and where nobody could hand it over
    if _shared is not None:
        yield _shared
        return
    _shared = TemplateCache()
    try:
        yield _shared
    finally:
        _shared.close()
        _shared = None


def templates_of_launcher() -> tuple[TemplateCache, bool]:
    """The templates for a new launcher, and whether it shares them with others, and so must not let them end."""
    return (TemplateCache(), False) if _shared is None else (_shared, True)


def _code_state(root: Path) -> list[tuple[str, int]]:
    """Each source file that a trial may import, with the time of its last change in ns: a template holds the code as it was."""
    folders = [root / "cluster", root / "experiments", *extra_folders()]
    return sorted((str(path), path.stat().st_mtime_ns) for folder in folders for path in folder.rglob("*.py"))
