"""The template process of an embedded pool: it imports what trials need, once, and forks a fresh process for each of them.

A trial of some seconds otherwise spends as long on importing torch, Ray Train and its model's modules. The template itself runs no trial,
opens no device and starts no Python thread, so that a forked process begins as a new one would after its imports. It learns what to
import from the trials themselves: each reports at its end which modules it had to import.

cluster/launchers/template.py starts it and sends requests, one JSON object a line; the replies are {"ready"}, {"started"}, {"failed"} and
{"ended", "code"}. The template ends once that connection is closed and its trials are over.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from cluster.process_marks import MARK, mark_forked_process
from cluster.source_tree import running_tree
from experiments.components import flop_count

BASE = ("cluster.worker.trial_session", "cluster.worker.ray_train", "ray.train.torch")
# Not imported in the template: they start processes or threads, ask for a device, or belong to one process
_NOT_HERE = ("torch._inductor", "triton", "torchao", "__main__", "__mp_main__", "multiprocessing.resource_tracker")
_START = "SWEEPBENCH_START"


def main() -> None:
    """Import, say that it is ready, and serve until the launcher is gone and all trials have ended."""
    parser = argparse.ArgumentParser(prog="python -m cluster.worker.template", description=__doc__)
    parser.add_argument("--channel", type=int, required=True, help="file descriptor of the connection to the launcher")
    parser.add_argument("--workload", required=True, help="a file in experiments/workloads")
    options = parser.parse_args()
    channel = socket.socket(fileno=options.channel)
    running_tree()  # of the code that is imported now; trials inherit it
    import_modules([*BASE, f"experiments.workloads.{options.workload}"])
    Template(channel).serve()


def import_modules(names: Iterable[str]) -> None:
    """Import modules that are not yet there, with no device to be had. One that cannot be imported here is left to the trials."""
    wanted = [name for name in names if name not in sys.modules and not name.startswith(_NOT_HERE)]
    with _no_device():
        for name in wanted:
            with suppress(Exception):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process must not write to, and so copy, what it shares with the template


@contextmanager
def _no_device() -> Iterator[None]:
    """Let no import initialise CUDA: a process forked after that cannot use it."""
    import torch.cuda

    def refuse() -> NoReturn:
        raise RuntimeError("the template process opens no device")

    before = torch.cuda._lazy_init
    torch.cuda._lazy_init = refuse
    try:
        yield
    finally:
        torch.cuda._lazy_init = before


def spoiled() -> str | None:
    """Why no trial may be forked from this process any more; None if one may."""
    import torch.cuda

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "an import has initialised CUDA"
    if threading.active_count() > 1:
        return f"an import has started a thread ({threading.enumerate()[-1].name})"
    return None


class Template:
    """Serves the requests of one launcher."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._open, self._children = channel, True, set[int]()
        self._requests = self._lessons = b""
        self._selector = selectors.DefaultSelector()
        self._lesson_source, self._lesson_sink = os.pipe()
        self._ended, wakeup = os.pipe()
        for descriptor in (self._ended, wakeup, self._lesson_source):
            os.set_blocking(descriptor, False)
        self._wakeup = wakeup

    def serve(self) -> None:
        """Handle requests, trials that end, and what they teach, until there is nothing left to do."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler there is no wakeup
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        self._selector.register(self._channel, selectors.EVENT_READ, self._read_requests)
        self._selector.register(self._ended, selectors.EVENT_READ, self._reap)
        self._selector.register(self._lesson_source, selectors.EVENT_READ, self._learn)
        self._send({"ready": os.getpid()})
        while self._open or self._children:
            for key, _ in self._selector.select():
                key.data()

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the launcher is gone
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _read_requests(self) -> None:
        try:
            data = self._channel.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._open = False
            self._selector.unregister(self._channel)
            return
        *lines, self._requests = (self._requests + data).split(b"\n")
        for line in lines:
            if not self._launcher_is_gone():  # it has died since: another may have started this trial meanwhile
                self._start(json.loads(line))

    def _launcher_is_gone(self) -> bool:
        try:
            return not self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _start(self, request: dict[str, Any]) -> None:
        problem = spoiled()
        if problem:
            self._send({"failed": problem})
            return
        source, sink = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(source)
            self._become_trial(request, sink)
        os.close(sink)
        with open(source, "rb") as told:
            problem = told.read().decode(errors="replace")  # empty once the process carries its mark
        if problem:
            os.waitpid(pid, 0)
            self._send({"failed": problem})
            return
        self._children.add(pid)
        self._send({"started": pid})

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._ended, 4096)
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._children.discard(pid)
                self._send({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _learn(self) -> None:
        with suppress(BlockingIOError):
            *lines, self._lessons = (self._lessons + os.read(self._lesson_source, 1 << 20)).split(b"\n")
            for line in lines:
                lesson = json.loads(line)
                flop_count.learn_counts(lesson) if isinstance(lesson, dict) else import_modules(lesson)

    def _become_trial(self, request: dict[str, Any], told: int) -> NoReturn:
        """In the forked process: a session, a log, an environment and a mark of its own, then the trial's entry point."""
        try:
            self._detach(request)
            mark_forked_process(request["environment"][MARK])
        except BaseException:
            os.write(told, traceback.format_exc(limit=1).encode()[-4000:])
            os._exit(1)
        os.close(told)
        status = 1
        try:
            from cluster.worker import main as worker

            before, counted = set(sys.modules), flop_count.known_counts()
            status = worker.main(request["arguments"])
            self._teach(sorted(set(sys.modules) - before))
            self._teach({name: count for name, count in flop_count.known_counts().items() if name not in counted})
            worker.leave(status)
        except BaseException:
            with suppress(OSError):
                traceback.print_exc()
        os._exit(status or 1)

    def _detach(self, request: dict[str, Any]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._ended, self._wakeup, self._lesson_source):
            os.close(descriptor)
        self._selector.close()
        self._channel.close()
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ.update(request["environment"], **{_START: "warm"})

    def _teach(self, lesson: list[str] | dict[str, flop_count.Counted]) -> None:
        """Modules to import, or FLOPs that need not be counted again."""
        if lesson:
            with suppress(OSError):  # the template is gone
                os.write(self._lesson_sink, json.dumps(lesson).encode() + b"\n")


if __name__ == "__main__":
    main()
