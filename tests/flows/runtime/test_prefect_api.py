"""What becomes of a command where Prefect's API does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from experiments.config.errors import ConfigError
from flows.runtime import prefect_api
from flows.runtime.prefect_api import PrefectAway, check, not_needed_at_the_end
from tests.ports_support import free_port


class ConnectError(Exception):
    """As httpx has it."""

    __module__ = "httpx"


@pytest.fixture
def closed() -> str:
    return f"http://127.0.0.1:{free_port()}/api"


@pytest.fixture
def refusing() -> Iterator[str]:
    """A server that answers every request with 401."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(401)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    import logging

    raising = logging.raiseExceptions
    yield
    logging.raiseExceptions, prefect_api._away = raising, False


def test_an_api_that_does_not_answer_is_refused_before_anything_starts(closed: str) -> None:
    with pytest.raises(
        PrefectAway, match=rf"^PREFECT_API_URL: {closed} does not answer \(Connection refused\); start it, or unset the var"
    ):
        check(closed)
    with pytest.raises(PrefectAway, match=r"'here' is no URL, such as http://127\.0\.0\.1:4200/api"):
        check("here")


def test_one_that_refuses_answers(refusing: str) -> None:
    check(refusing)


def lost(cause: BaseException | None) -> None:
    """Prefect's client fails while it reports how a flow ended."""
    try:
        if cause is not None:
            raise cause
    finally:
        raise ConnectError("All connection attempts failed")


def run(monkeypatch: pytest.MonkeyPatch, why: str | None, *, ended: bool, cause: BaseException | None = None) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(prefect_api, "problem", lambda: why)
    with not_needed_at_the_end(lambda: ended, said.append):
        lost(cause)
    return said


def test_a_flow_that_has_ended_needs_no_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(prefect_api.os, "_exit", left.append)
    with pytest.raises(SystemExit) as kept:
        prefect_api.leave(2)
    assert (kept.value.code, left) == (2, [])
    (said,) = run(monkeypatch, "u does not answer", ended=True)
    assert said == "Prefect did not record how its flow run ended (u does not answer); the sweep's results are complete without it"
    with pytest.raises(SystemExit):
        prefect_api.leave(2)
    assert left == [2], "its threads would go on trying"


def test_what_ended_the_flow_is_said_although_prefect_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="axes"):
        run(monkeypatch, "gone", ended=False, cause=ConfigError.one("s.yaml", 1, "axes", "is empty", "give one"))
    with pytest.raises(PrefectAway, match=r"^Prefect: gone; the flow ended with KeyError: 'x'; go on with the sweep once Prefect answers$"):
        run(monkeypatch, "gone", ended=False, cause=KeyError("x"))
    with pytest.raises(PrefectAway, match=r"^Prefect: gone; go on with"):
        run(monkeypatch, "gone", ended=False)


def test_an_error_with_prefect_there_is_nobodys_fault_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectError):
        run(monkeypatch, None, ended=False)
