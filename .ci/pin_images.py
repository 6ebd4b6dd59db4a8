"""Pins the base image of each Containerfile by digest: asks its registry what the tag is today, and writes `FROM name:tag@sha256:...`.

`make pin-images`, or `pin_images.py [CONTAINERFILE ...]`. It needs the registries, by HTTPS (HTTP on loopback); nothing else is downloaded.
The protocol: https://distribution.github.io/distribution/spec/api/ and .../spec/auth/token/.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPMessage
from pathlib import Path

FROM = re.compile(r"^FROM (?P<registry>[^/\s]+)/(?P<name>[^:@\s]+):(?P<tag>[^@\s]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?$", re.MULTILINE)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# An index of several platforms first: a digest of one platform's manifest would not build on the others
KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
API = {"docker.io": "registry-1.docker.io"}
TIMEOUT_S = 30.0


def main(paths: list[Path]) -> None:
    """Pin each file's image. Raises SystemExit that names the file where a registry does not tell; no file is then half written."""
    for path in paths:
        text = path.read_text()
        found = FROM.search(text)
        if found is None:
            raise SystemExit(f"{path}: no line `FROM registry/name:tag`")
        try:
            digest = digest_of(found["registry"], found["name"], found["tag"])
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path}: {found['registry']} does not tell the digest of {found['name']}:{found['tag']}: {error}") from None
        path.write_text(text[: found.start()] + f"FROM {found['registry']}/{found['name']}:{found['tag']}@{digest}" + text[found.end() :])
        print(f"{path}: {digest}{'' if digest == found['digest'] else ', was ' + (found['digest'] or 'not pinned')}")


def digest_of(registry: str, name: str, tag: str) -> str:
    """The digest that the registry gives for a tag. Raises OSError, ValueError."""
    host = API.get(registry, registry)
    scheme = "http" if host.split(":")[0] == "127.0.0.1" else "https"
    url = f"{scheme}://{host}/v2/{name}/manifests/{tag}"
    request = urllib.request.Request(url, method="HEAD", headers={"Accept": ", ".join(KINDS)})  # noqa: S310 - one of two schemes
    try:
        headers = _headers(request)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        request.add_header("Authorization", f"Bearer {_token(error.headers.get('WWW-Authenticate', ''))}")
        headers = _headers(request)
    digest = str(headers.get("Docker-Content-Digest", ""))
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"its answer has the digest {digest!r}")
    return digest


def _headers(request: urllib.request.Request) -> HTTPMessage:
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - see digest_of
        return answer.headers  # type: ignore[no-any-return]


def _token(challenge: str) -> str:
    """An anonymous token from the server that the registry names: `Bearer realm="...",service="...",scope="..."`."""
    said = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if not said.get("realm", "").startswith(("https://", "http://127.0.0.1:")):
        raise ValueError(f"it asks for {challenge or 'credentials'!r}")
    query = urllib.parse.urlencode({key: said[key] for key in ("service", "scope") if key in said})
    with urllib.request.urlopen(f"{said['realm']}?{query}", timeout=TIMEOUT_S) as answer:  # noqa: S310 - checked
        body = json.load(answer)
    return str(body.get("token") or body["access_token"])


if __name__ == "__main__":
    files = [Path(argument) for argument in sys.argv[1:]]
    main(files or sorted((Path(__file__).parents[1] / "cluster" / "images").glob("*.Containerfile")))
