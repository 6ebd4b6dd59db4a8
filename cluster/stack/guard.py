"""Restrict a local web server to requests from its own pages and from programs on this machine.

Without this check any web page open in a browser here could post to the Prefect API, which starts processes. The page could do so directly
or through a host name that it resolves to 127.0.0.1 (DNS rebinding). MLflow's server has the same check; Ray's needs a token.
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
    """ASGI application that wraps another and answers 403 to HTTP and WebSocket requests with a foreign Host or Origin header."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or allowed(scope["headers"]):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # closed before it is accepted: the client sees HTTP 403
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"foreign Host or Origin"})


def allowed(headers: list[tuple[bytes, bytes]]) -> bool:
    """True if the Host header names this machine, and the Origin header, if there is one, a page of this very server.

    Another server of this machine is another port, which a page of it says in its Origin. A server that is reached through a forwarded port
    sees the forwarded one in both headers.
    """
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    port = _port_of(f"http://{hosts[0]}") if len(hosts) == 1 else None
    return port is not None and all(_port_of(origin) == port for origin in origins)


def _port_of(url: str) -> int | None:
    """The port of an http URL on this machine; None for any other."""
    try:
        parts = urlsplit(url)
        return (parts.port or 80) if parts.scheme == "http" and parts.hostname in _OURS else None
    except ValueError:
        return None
