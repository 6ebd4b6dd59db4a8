"""Fork a trial's process from this one for each request that comes over a connection, and tell how it ended.

A connection carries one JSON object a line. Requests: {"arguments", "environment", ...} starts a trial, {"signal"} is passed on to it,
{"import"} names modules that the trials of another template needed. Replies: {"ready"}, {"started"}, {"failed", "half_imported"}, whose
modules no later template should import, {"ended", "code"} and {"learnt"}, the modules that a trial of this template needed. A launcher's
connection starts trials that write to the file `log` and outlive it. A job's connection, which brings the job's two output files along,
starts one trial, with the job's environment and working directory; it ends with the connection, and with this process, as nobody else
could tell the job how it ended.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypedDict

from cluster.process_marks import MARK, mark_forked_process
from cluster.worker import forked_ranks, node_socket
from cluster.worker.template_imports import Lesson, half_imported, import_modules, spoiled
from experiments.components import flop_count
from experiments.parent_death import end_with

IDLE_S = 300.0  # a node's template ends after so long without a trial: a sweep's next one comes sooner
_START = "SWEEPBENCH_START"


class _Lesson(TypedDict):
    pid: int
    modules: list[str]
    flops: dict[str, flop_count.Counted]


@dataclass(eq=False)
class _Connection:
    channel: socket.socket
    of_job: bool
    unread: bytes = b""
    outputs: list[int] = field(default_factory=list)

    def send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the other side is gone
            self.channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Requests that have come; None once the other side has closed."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.channel, 65536, 2)
        except OSError:
            data, descriptors = b"", []
        self.outputs += descriptors
        if not data:
            return None
        *lines, self.unread = (self.unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def gone(self) -> bool:
        """Whether the other side has died since it asked: another may have started that trial meanwhile."""
        try:
            return not self.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.channel.close()
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = []


class ForkServer:
    """Serves one launcher, or the jobs of a node."""

    def __init__(self) -> None:
        self._connections: set[_Connection] = set()
        self._children: dict[int, _Connection] = {}
        self._listener: socket.socket | None = None
        self._raylet, self._ray_is_gone = -1, False
        self._unread_lessons, self._lessons = b"", list[_Lesson]()
        self._idle_since = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._lesson_source, self._lesson_sink = os.pipe()
        self._ended, self._wakeup = os.pipe()
        for descriptor in (self._ended, self._wakeup, self._lesson_source):
            os.set_blocking(descriptor, False)

    def serve_launcher(self, channel: socket.socket) -> None:
        """Take requests from `channel`, until it is closed and the last trial is over."""
        self._connect(_Connection(channel, of_job=False))

    def serve_jobs(self, listener: socket.socket, raylet: int) -> None:
        """Take requests from jobs that connect to `listener`, until none has come for long. `raylet`: file descriptor of Ray's process."""
        self._listener, self._raylet = listener, raylet
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(raylet, selectors.EVENT_READ, self._leave_with_ray)

    def run(self) -> None:
        """Handle requests, trials that end, and what they teach, until there is nothing left to do."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler there is no wakeup
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        self._selector.register(self._ended, selectors.EVENT_READ, self._reap)
        self._selector.register(self._lesson_source, selectors.EVENT_READ, self._read_lessons)
        for connection in self._connections:
            connection.send({"ready": os.getpid()})
        while self._in_use():
            for key, _ in self._selector.select(IDLE_S if self._listener else None):
                key.data()
            self._learn()
        for pid in self._children:
            _kill(pid)

    def _in_use(self) -> bool:
        if self._ray_is_gone:
            return False
        if self._connections or self._children:
            self._idle_since = time.monotonic()
            return True
        return self._listener is not None and spoiled() is None and time.monotonic() - self._idle_since < IDLE_S

    def _leave_with_ray(self) -> None:
        self._ray_is_gone = True

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(OSError):  # it has gone again
            channel, _ = self._listener.accept()
            if node_socket.peer(channel).uid == os.geteuid():
                self._connect(_Connection(channel, of_job=True))
            else:
                channel.close()

    def _connect(self, connection: _Connection) -> None:
        self._connections.add(connection)
        self._selector.register(connection.channel, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: _Connection) -> None:
        requests = connection.receive()
        if requests is None:
            self._disconnect(connection)
            return
        for request in requests:
            if "signal" in request:
                for pid in self._trials_of(connection):
                    os.kill(pid, request["signal"])  # it has not been waited for, so the number is still its own
            elif "import" in request:
                import_modules(request["import"])  # now: the next trial would have to, and this process again after it
            elif not connection.gone():
                self._start(connection, request)

    def _disconnect(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.channel)
        connection.close()
        if connection.of_job:
            for pid in self._trials_of(connection):
                _kill(pid)

    def _trials_of(self, connection: _Connection) -> list[int]:
        return [pid for pid, asked_by in self._children.items() if asked_by is connection]

    def _start(self, connection: _Connection, request: dict[str, Any]) -> None:
        problem = spoiled()
        if problem:
            connection.send({"failed": problem, "half_imported": half_imported()})
            return
        source, sink = os.pipe()
        template, pid = os.getpid(), os.fork()
        if pid == 0:
            os.close(source)
            self._become_trial(connection, request, sink, template)
        os.close(sink)
        with open(source, "rb") as told:
            problem = told.read().decode(errors="replace")  # empty once the process carries its mark
        if problem:
            os.waitpid(pid, 0)
            connection.send({"failed": problem})
            return
        self._children[pid] = connection
        connection.send({"started": pid})

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._ended, 4096)
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._children.pop(pid).send({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _read_lessons(self) -> None:
        with suppress(BlockingIOError):
            *lines, self._unread_lessons = (self._unread_lessons + os.read(self._lesson_source, 1 << 20)).split(b"\n")
            self._lessons += map(json.loads, lines)

    def _learn(self) -> None:
        """Not before a trial's end is told: imports take seconds."""
        due = [lesson for lesson in self._lessons if lesson["pid"] not in self._children]
        for lesson in due:
            self._lessons.remove(lesson)
            flop_count.learn_counts(lesson["flops"])
            import_modules(lesson["modules"])
            for connection in self._connections:
                if not connection.of_job:
                    connection.send({"learnt": [name for name in lesson["modules"] if name in sys.modules]})

    def _become_trial(self, connection: _Connection, request: dict[str, Any], told: int, template: int) -> NoReturn:
        """In the forked process: a session, a log, an environment and a mark of its own, then the trial's entry point."""
        try:
            self._detach(connection, request, template)
            mark_forked_process(request["environment"][MARK])
        except BaseException:
            os.write(told, traceback.format_exc(limit=1).encode()[-4000:])
            os._exit(1)
        os.close(told)
        status = 1
        try:
            from cluster.worker import main as worker

            lesson = Lesson()
            status = worker.main(request["arguments"])
            self._teach(list(dict.fromkeys([*lesson.modules, *forked_ranks.imported])), lesson.counts)
            worker.leave(status)
        except BaseException:
            with suppress(OSError):  # the log's disk is full
                traceback.print_exc()
        os._exit(status or 1)

    def _detach(self, connection: _Connection, request: dict[str, Any], template: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if connection.of_job:
            end_with(template)
            os.chdir(request["directory"])
            os.environ.clear()
            for number, output in enumerate(connection.outputs, start=1):
                os.dup2(output, number)
        else:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
        os.environ.update(request["environment"], **{_START: "warm"})
        for descriptor in (self._ended, self._wakeup, self._lesson_source, *([self._raylet] if self._listener else [])):
            os.close(descriptor)
        self._selector.close()
        if self._listener:
            self._listener.close()
        for other in self._connections:
            other.close()

    def _teach(self, modules: list[str], flops: dict[str, flop_count.Counted]) -> None:
        """Modules to import, and FLOPs that need not be counted again."""
        lesson: _Lesson = {"pid": os.getpid(), "modules": modules, "flops": flops}
        if modules or flops:
            with suppress(OSError):  # the template is gone
                os.write(self._lesson_sink, json.dumps(lesson).encode() + b"\n")


def _kill(pid: int) -> None:
    """Kill a trial and what it has left in its session. It has not been waited for, so the number is still its own."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
