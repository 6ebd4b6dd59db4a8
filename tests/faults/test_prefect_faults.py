"""Prefect's server goes away under a sweep, for a while (row 9) or for good (row 10): trials go on and lose nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import struct
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from experiments.trial import Outcome
from tests.cli_support import DEADLINE_S, running_step, start, until
from tests.mlflow_support import check_projection
from tests.process_support import command_of

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900), pytest.mark.usefixtures("mlflow_database")]


class Link(socketserver.ThreadingTCPServer):
    """A port that leads to a server while the link is whole. `refused`: connections that came while it was cut."""

    allow_reuse_address = daemon_threads = True
    refused = 0

    def __init__(self, to: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Passes)
        self.to, self.cut, self.open = to, threading.Event(), set[socket.socket]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api"

    def break_off(self) -> None:
        """As when the server dies: what is open ends, and nobody gets through."""
        self.cut.set()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.cut.clear()


class _Passes(socketserver.BaseRequestHandler):
    server: Link

    def handle(self) -> None:
        if self.server.cut.is_set():
            self.server.refused += 1
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            return
        with socket.create_connection(self.server.to) as upstream:
            self.server.open |= {self.request, upstream}
            back = threading.Thread(target=_pass_on, args=(upstream, self.request))
            back.start()
            _pass_on(self.request, upstream)
            back.join()
            self.server.open -= {self.request, upstream}


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def link(prefect_server: str) -> Iterator[Link]:
    """To the session's Prefect server."""
    at = urlsplit(prefect_server)
    with Link((str(at.hostname), int(at.port or 0))) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        made.break_off()
        thread.join()


def test_row_9_a_prefect_server_that_is_away_for_a_while_sees_the_sweep_to_its_end(tmp_path: Path, link: Link) -> None:
    process = start("run", "one_of_three", folder=tmp_path, PREFECT_API_URL=link.url)
    store = until(running_step(1, 1), process)  # the flow follows the second trial
    link.break_off()
    second = store.load_plan().trials[1]
    until(lambda: store.result(second.key) is not None and link.refused, process)  # the fault fired: a trial ends while it is away
    link.mend()
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and "Traceback" not in text, text
    results = [store.result(trial.key) for trial in store.load_plan().trials]
    assert [(result.outcome, result.attempt) for result in results if result] == [(Outcome.OK, 1)] * 3
    check_projection(store)
    (run,) = store.flow_runs()
    with urllib.request.urlopen(f"{link.url}/flow_runs/{run}", timeout=120) as reply:
        assert json.load(reply)["state"]["type"] == "COMPLETED"


def test_row_10_a_prefect_server_that_is_killed_costs_seconds_and_no_result(tmp_path: Path) -> None:
    process = start("run", "one_of_three", folder=tmp_path)
    store = until(running_step(1, 1), process)  # the flow follows the second trial
    (server,) = (child for child in psutil.Process(process.pid).children() if "cluster.stack.prefect_server" in command_of(child))
    server.kill()
    server.wait(timeout=60)
    assert not server.is_running() and process.poll() is None  # the fault fired while the sweep ran
    text, _ = process.communicate(timeout=DEADLINE_S)  # it once took 633 s: a minute for each call to a server that was gone
    assert process.returncode == 0, text
    results = [store.result(trial.key) for trial in store.load_plan().trials]
    assert [result.outcome for result in results if result] == [Outcome.OK] * 3
    assert "does not answer (Connection refused); trials go on and are recorded without it" in text
    assert "Prefect did not record how its flow run ended" in text and "Traceback" not in text
    assert "every trial ended as expected (3 ok)" in text
    check_projection(store)
