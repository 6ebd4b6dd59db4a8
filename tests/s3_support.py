"""A local stand-in for S3: moto's server on loopback, in this process."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "results"


@contextmanager
def s3_server() -> Iterator[str]:
    """A server with one empty bucket; gives the bucket's URI. Clients need any AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"{host}:{port}"
        request = urllib.request.Request(f"http://{address}/{BUCKET}", method="PUT")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120).close()
        yield f"s3://{BUCKET}/sweeps?scheme=http&endpoint_override={address}"
    finally:
        server.stop()
