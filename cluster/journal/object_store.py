"""Files of trials on storage that nodes and flow share: a folder, file://, s3:// or gs://, through pyarrow.fs.

An object is there whole or not at all. Nothing is appended to: object stores cannot. Credentials come from where each store's own tools
take them (AWS_*, instance roles, GOOGLE_APPLICATION_CREDENTIALS), never from the URI.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, urlsplit

SCHEMES = ("file", "s3", "gs")
_CONNECT_S, _REQUEST_S = 5.0, 20.0


class StorageError(Exception):
    """The storage does not answer, or refuses: names it and says what it said."""


def problem_with(uri: str) -> str | None:
    """What is wrong with a storage URI, None if nothing is."""
    if uri.startswith("/"):
        return None
    try:
        parts = urlsplit(uri)
    except ValueError:
        return f"is {uri!r}, which is not a URI"
    if parts.scheme not in SCHEMES:
        return f"is {uri!r}, which is neither a path from / nor file://, s3:// or gs://"
    if parts.username or parts.password or "access_key" in parts.query or "secret_key" in parts.query:
        return "holds credentials"  # it is shown and logged
    if parts.scheme != "file" and not parts.netloc:
        return f"is {uri!r}: the bucket is missing"
    return None


def join(uri: str, *names: str) -> str:
    """The URI of something below `uri`, its query kept."""
    base, mark, query = uri.partition("?")
    return "/".join([base.rstrip("/"), *names]) + mark + query


class Storage:
    """The folder `uri`. Names are relative to it, with `/`. All methods raise StorageError."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._open: tuple[Any, str] | None = None

    def put(self, name: str, data: bytes) -> None:
        """Write an object, whole or not at all; replaces an older one."""
        files, path = self._place(name)
        with _named(self.uri):
            if files.type_name == "local":
                _write_local(Path(path), data)
                return
            with files.open_output_stream(path, compression=None) as out:  # else pyarrow packs what is called .gz once more
                out.write(data)

    def get(self, name: str) -> bytes | None:
        """An object's content, None if it is not there."""
        files, path = self._place(name)
        with _named(self.uri):
            try:
                with files.open_input_stream(path, compression=None) as source:
                    data: bytes = source.read()
                    return data
            except FileNotFoundError:
                return None

    def names(self, folder: str = "") -> dict[str, int]:
        """Everything below `folder`: name relative to it -> size in bytes."""
        from pyarrow import fs

        files, path = self._place(folder)
        with _named(self.uri):
            found = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return {str(PurePosixPath(info.path).relative_to(path)): info.size for info in found if info.type == fs.FileType.File}

    def put_folder(self, folder: Path, name: str) -> None:
        """Copy a local folder. What is there with its size is not sent again; `_complete` is written last."""
        there = self.names(name)
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if path.is_file() and there.get(relative) != path.stat().st_size:
                self.put(f"{name}/{relative}", path.read_bytes())
        if "_complete" not in there:
            self.put(f"{name}/_complete", b"")

    def _place(self, name: str) -> tuple[Any, str]:
        with _named(self.uri):
            if self._open is None:
                self._open = _filesystem(self.uri)
        files, root = self._open
        return files, f"{root}/{name}".rstrip("/")


def _filesystem(uri: str) -> tuple[Any, str]:
    from pyarrow import fs

    if uri.startswith("/"):
        return fs.LocalFileSystem(), uri.rstrip("/")
    parts = urlsplit(uri)
    if parts.scheme != "s3":
        files, path = fs.FileSystem.from_uri(uri)
        return files, path.rstrip("/")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    endpoint = query.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    scheme, _, host = (endpoint or "").rpartition("://")
    files = fs.S3FileSystem(
        region=query.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        endpoint_override=host or None,
        scheme=query.get("scheme") or scheme or "https",
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),  # who calls tries again, and goes on with its work meanwhile
    )
    return files, (parts.netloc + parts.path).rstrip("/")


def _write_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # other hosts write here too: no process id is enough
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class _named:
    """Turns what a store's library raises into a StorageError that names the store."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | ValueError | ImportError) and not isinstance(error, StorageError):
            raise StorageError(f"storage {self.uri.partition('?')[0]}: {' '.join(str(error).split())[:300]}") from error
