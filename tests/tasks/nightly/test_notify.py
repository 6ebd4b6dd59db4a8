"""One message through real Prefect blocks to a webhook on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tasks.nightly.notify import NotifyError, send, send_all

pytestmark = pytest.mark.integration


@contextmanager
def webhook(status: int = 204) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the JSON that it has been sent."""
    received: list[Any] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def custom(name: str, url: str) -> str:
    """Save a Custom Webhook block; its full name."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    block = CustomWebhookNotificationBlock(name=name, url=url, json_data={"subject": "{{subject}}", "text": "{{body}}"})
    block.save(name, overwrite=True)
    return f"custom-webhook/{name}"


def test_blocks_of_both_kinds_take_the_message_once(prefect_server: str) -> None:
    from prefect.blocks.webhook import Webhook

    with webhook() as (url, received):
        Webhook(url=url).save("plain", overwrite=True)
        names = [custom("kept", url), "webhook/plain"]
        sent, problems = send_all(names, [], "subject", "body\nwith lines")
        assert (sent, problems) == (names, [])
        assert received == [{"subject": "subject", "text": "body\nwith lines"}] * 2
        assert send_all(names, sent, "subject", "again") == (names, [])
        assert len(received) == 2


def test_a_mail_block_sends_through_its_service_and_says_when_it_cannot(prefect_server: str) -> None:
    """Slack, Teams and e-mail blocks are Apprise's; here its plain JSON service stands for theirs, on loopback."""
    from prefect.blocks.notifications import SlackWebhook

    with webhook() as (url, received):
        SlackWebhook(url=url.replace("http://", "json://")).save("team", overwrite=True)
        send("slack-webhook/team", "subject", "body")
        assert (received[0]["title"], received[0]["message"]) == ("subject", "body")
    with pytest.raises(NotifyError, match="slack-webhook/team did not take the message"):
        send("slack-webhook/team", "subject", "body")


def test_what_cannot_be_sent_is_named_and_stops_nothing(prefect_server: str) -> None:
    from prefect.blocks.system import Secret

    with webhook(status=500) as (url, received), webhook() as (good, taken):
        Secret(value="x").save("no-hook", overwrite=True)
        names = ["custom-webhook/nobody", custom("broken", url), "secret/no-hook", custom("whole", good)]
        sent, problems = send_all(names, [], "s", "b")
        assert sent == [names[3]] and len(taken) == 1 and len(received) == 1
        assert "custom-webhook/nobody cannot be loaded" in problems[0] and "prefect block ls" in problems[0]
        assert "500" in problems[1] and "sends no notifications" in problems[2]
