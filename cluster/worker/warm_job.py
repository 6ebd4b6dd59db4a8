"""The process of a Ray job whose trial runs in a process forked from the node's template: it asks for it, follows it and ends as it did.

    python -m cluster.worker.warm_job --template KEY --workload NAME -- ARGUMENT...

The arguments are those of cluster.worker.main. The trial writes to this job's log itself. What Ray does to this process happens to the
trial: SIGTERM and SIGINT are passed on, and once this process is gone the template kills the trial. The first job on a node starts the
template. Where there is none to be had, this process becomes the trial, and the log says why.

Imports only what starts within hundredths of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster.process_marks import MARK, NO_TRIAL
from cluster.worker import node_socket

READY_S = 120.0  # imports on a slow disk may take so long; it may also be importing what the last trial taught it
END_S = (
    60.0  # from the template's end until its trial has ended too: the kernel kills it, and a device's memory takes some time to be freed
)
_SIGNALLED = 128  # exit statuses from here on mean a signal, as in a shell


class NoTemplate(Exception):
    """No trial could be forked. This process can become the trial instead."""


def main() -> int:
    """Run one attempt of one trial. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cluster.worker.warm_job", description=__doc__)
    parser.add_argument("--template", required=True, help="what the trial's imports depend on, as a short word")
    parser.add_argument("--workload", required=True, help="a file in experiments/workloads")
    parser.add_argument("arguments", nargs="*", help="of cluster.worker.main")
    options = parser.parse_args()
    try:
        trial = ForkedTrial(template(options.template, options.workload), options.arguments)
    except (NoTemplate, OSError) as error:
        print(f"a fresh process, since none could be forked from the template: {error}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, "-m", "cluster.worker.main", *options.arguments])  # noqa: S606 - no shell is wanted
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: trial.signal(number))
    return trial.wait()


def template(key: str, workload: str) -> socket.socket:
    """A connection to this node's template of that key, started if need be. Raises NoTemplate and OSError."""
    raylet = node_socket.raylet()
    if raylet is None:
        raise NoTemplate("this process was not started by Ray")
    name = node_socket.address(key, raylet)
    try:
        return node_socket.connect(name)
    except ConnectionRefusedError:
        print("starting a template process, which later trials on this node are forked from", flush=True)
        _start(name, workload, raylet)
    try:
        return node_socket.connect(name)
    except ConnectionRefusedError:
        raise NoTemplate("it has ended at once") from None


def _start(name: str, workload: str, raylet: int) -> None:
    """Start the template, and return once it takes connections or has ended. It belongs to no job: `ray job stop` must not end it."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                os.set_inheritable(sink, True)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                arguments = ["--name", name[1:], "--workload", workload, "--raylet", str(raylet), "--started", str(sink)]
                # the check must not initialise CUDA
                variables = {**os.environ, MARK: NO_TRIAL, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
                command = [sys.executable, "-m", "cluster.worker.template", *arguments]
                os.execve(sys.executable, command, variables)  # noqa: S606
        finally:
            os._exit(0)
    os.close(sink)
    os.waitpid(child, 0)
    select.select([source], [], [], READY_S)
    os.close(source)


class ForkedTrial:
    """The trial's process, as the template tells of it."""

    def __init__(self, channel: socket.socket, arguments: list[str]) -> None:
        """Have it forked. Raises NoTemplate; the template then starts it no more."""
        self._channel, self._unread = channel, b""
        request = {"arguments": arguments, "environment": dict(os.environ), "directory": str(Path.cwd())}
        channel.settimeout(READY_S)
        try:
            socket.send_fds(channel, [b" "], [1, 2])
            channel.sendall(json.dumps(request).encode() + b"\n")
            answer = self._next()
        except OSError as error:
            _end(channel)  # it must not fork this trial later, beside the process that takes its place
            raise NoTemplate(f"the template process does not answer: {error}") from error
        if answer is None:
            raise NoTemplate("the template process has ended")
        if "failed" in answer:
            raise NoTemplate(str(answer["failed"]).strip())
        channel.settimeout(None)
        self._process: int | None = None
        with suppress(OSError):  # it is over already; and a trial that runs must not be taken for one that could not be forked
            self._process = os.pidfd_open(answer["started"])

    def signal(self, number: int) -> None:
        """Pass a signal on to the trial."""
        with suppress(OSError):  # the trial is over
            self._channel.sendall(json.dumps({"signal": number}).encode() + b"\n")

    def wait(self) -> int:
        """The trial's exit status, as a shell gives it."""
        answer = self._next()
        if answer is None:
            self._wait_for_end()
            print("the template process was ended, and its trial with it", file=sys.stderr, flush=True)
            return _SIGNALLED + signal.SIGKILL
        code = int(answer["code"])
        return code if code >= 0 else _SIGNALLED - code

    def _wait_for_end(self) -> None:
        """Wait until the trial has ended, once its template has: a process that ends closes its sockets before its children are killed."""
        if self._process is not None:
            ends = select.poll()
            ends.register(self._process, select.POLLIN)
            ends.poll(END_S * 1000)

    def _next(self) -> dict[str, Any] | None:
        """The template's next message; None once it is gone. Raises TimeoutError."""
        while b"\n" not in self._unread:
            try:
                data = self._channel.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


def _end(channel: socket.socket) -> None:
    """Kill the template, and with it what it has forked."""
    os.kill(node_socket.peer(channel).pid, signal.SIGKILL)
    channel.close()


if __name__ == "__main__":
    sys.exit(main())
