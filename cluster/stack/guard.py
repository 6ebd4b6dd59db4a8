"""A web server of this machine answers only what was asked of this machine, by its own pages or by a program.

Without it any web page open in a browser here could post to the Prefect API, directly or through a name that it lets resolve to
127.0.0.1 (DNS rebinding), and the API starts processes. MLflow's server checks the same itself; Ray's wants its token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_OURS = frozenset({"127.0.0.1", "localhost", "::1"})


class LocalOnly:
    """ASGI application around another: 403 for a foreign Host or Origin header, for HTTP and WebSocket."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or allowed(scope["headers"]):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before it was accepted: the client sees HTTP 403
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"foreign Host or Origin"})


def allowed(headers: list[tuple[bytes, bytes]]) -> bool:
    """True if the request names this machine, on any port, as its Host and, where it says one, as its Origin."""
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    return len(hosts) == 1 and _ours(f"//{hosts[0]}") and all(_ours(origin) for origin in origins)


def _ours(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _OURS
    except ValueError:
        return False
