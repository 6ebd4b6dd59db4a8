"""A Prefect server with PREFECT_SERVER_API_AUTH_STRING, behind our guard: neither HTTP nor WebSocket is served without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ASK = """
import json
from prefect.server.api.server import create_app
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from cluster.stack.guard import LocalOnly

client = TestClient(LocalOnly(create_app(final=True)), base_url="http://127.0.0.1:4200")
said = [client.get("/api/admin/version", auth=auth).status_code for auth in (None, ("user", "wrong"), ("user", "pass"))]
for first in ({"type": "event"}, {"type": "auth", "token": "user:wrong"}, {"type": "auth", "token": "user:pass"}):
    try:
        with client.websocket_connect("/api/events/in", subprotocols=["prefect"], headers={"host": "127.0.0.1:4200"}) as socket:
            socket.send_json(first)
            said.append(socket.receive_json()["type"])
    except WebSocketDisconnect as error:
        said.append(error.code)
print(json.dumps(said))
"""


def test_nothing_is_served_without_the_password(tmp_path: Path) -> None:
    environment = {**os.environ, "PREFECT_SERVER_API_AUTH_STRING": "user:pass", "PREFECT_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [401, 401, 200, 1008, 1008, "auth_success"]
