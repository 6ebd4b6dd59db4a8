"""Base images are pinned by the digest that the registry gives for their tag; a registry of our own stands for the real ones."""

from __future__ import annotations

import http.server
import json
import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "pin_images.py"
DIGEST = f"sha256:{'ab' * 32}"


class Registry(http.server.BaseHTTPRequestHandler):
    """Gives the digest of team/image:1 to who brings the token that it hands out."""

    digest = DIGEST

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != "Bearer ticket":
            self.send_response(401)
            here = f"http://127.0.0.1:{self.server.server_address[1]}"
            self.send_header("WWW-Authenticate", f'Bearer realm="{here}/token",service="here",scope="repository:team/image:pull"')
        elif self.path == "/v2/team/image/manifests/1" and "index" in self.headers["Accept"].split(",")[0]:
            self.send_response(200)
            self.send_header("Docker-Content-Digest", self.digest)
        else:
            self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        ok = self.path == "/token?service=here&scope=repository%3Ateam%2Fimage%3Apull"
        self.send_response(200 if ok else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"token": "ticket"}).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def main() -> Callable[[list[Path]], None]:
    return runpy.run_path(str(SCRIPT))["main"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("before", ["", f"@sha256:{'cd' * 32}"])
def test_a_tag_is_pinned_by_what_it_is_today(registry: str, main: Callable[[list[Path]], None], tmp_path: Path, before: str) -> None:
    file = tmp_path / "a.Containerfile"
    file.write_text(f"# an image\nFROM {registry}/team/image:1{before}\nRUN true\n")
    main([file])
    assert file.read_text() == f"# an image\nFROM {registry}/team/image:1@{DIGEST}\nRUN true\n"


@pytest.mark.parametrize(("tag", "digest", "said"), [("2", DIGEST, "404"), ("1", "sha256:short", "sha256:short")])
def test_what_a_registry_does_not_tell_changes_nothing(
    registry: str, main: Callable[[list[Path]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str, digest: str, said: str
) -> None:
    monkeypatch.setattr(Registry, "digest", digest)
    file = tmp_path / "a.Containerfile"
    text = f"FROM {registry}/team/image:{tag}\n"
    file.write_text(text)
    with pytest.raises(SystemExit, match=said) as error:
        main([file])
    assert str(error.value).startswith(f"{file}: {registry} does not tell the digest of team/image:{tag}")
    assert file.read_text() == text


def test_the_images_of_the_project_are_pinned() -> None:
    pattern = runpy.run_path(str(SCRIPT))["FROM"]
    files = sorted((SCRIPT.parents[1] / "cluster" / "images").glob("*.Containerfile"))
    found = {file.name: [bool(image["digest"]) for image in pattern.finditer(file.read_text())] for file in files}
    assert found == {"a100.Containerfile": [True], "gaudi2.Containerfile": [True]}
