"""Files of trials on storage that the nodes and the flow share: a folder, file://, s3:// or gs://, through pyarrow.fs.

Writing an object is atomic: it exists completely or not at all. Object stores cannot append, so nothing here does. Credentials come from
where the store's own tools find them (AWS_*, instance roles, GOOGLE_APPLICATION_CREDENTIALS), never from the URI.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, urlsplit

from experiments.atomic_file import atomic_file
from experiments.config.credentials import credentials_in

SCHEMES = ("file", "s3", "gs")
_CONNECT_S, _REQUEST_S = 5.0, 20.0


class StorageError(Exception):
    """The storage does not answer, or refuses a request. The message names the storage and quotes its error."""


def problem_with(uri: str) -> str | None:
    """What is wrong with a storage URI; None if it is valid."""
    if uri.startswith("/"):
        return None
    try:
        parts = urlsplit(uri)
    except ValueError:
        return f"is {uri!r}, which is not a URI"
    if parts.scheme not in SCHEMES:
        return f"is {uri!r}, which is neither a path from / nor file://, s3:// or gs://"
    if problem := credentials_in(uri):
        return problem  # it is shown and logged
    if parts.scheme != "file" and not parts.netloc:
        return f"is {uri!r}: the bucket is missing"
    return None


def join(uri: str, *names: str) -> str:
    """The URI of `names` below `uri`; the query of `uri` stays at the end."""
    base, mark, query = uri.partition("?")
    return "/".join([base.rstrip("/"), *names]) + mark + query


class Storage:
    """The folder `uri`. Object names are relative to it and use `/`. All methods raise StorageError."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._open: tuple[Any, str] | None = None

    def put(self, name: str, data: bytes) -> None:
        """Write an object atomically, replacing an older one of the same name."""
        files, path = self._locate(name)
        with _named(self.uri):
            if files.type_name == "local":
                _write_local(Path(path), data)
                return
            with files.open_output_stream(path, compression=None) as out:  # by default pyarrow would compress a .gz file again
                out.write(data)

    def get(self, name: str) -> bytes | None:
        """An object's content; None if it does not exist."""
        files, path = self._locate(name)
        with _named(self.uri):
            try:
                with files.open_input_stream(path, compression=None) as source:
                    data: bytes = source.read()
                    return data
            except FileNotFoundError:
                return None

    def names(self, folder: str = "") -> dict[str, int]:
        """All objects below `folder`: name relative to it -> size in bytes."""
        from pyarrow import fs

        files, path = self._locate(folder)
        with _named(self.uri):
            infos = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return {str(PurePosixPath(info.path).relative_to(path)): info.size for info in infos if info.type == fs.FileType.File}

    def put_folder(self, folder: Path, name: str) -> None:
        """Copy a local folder to `name`. Skips files that are there with the same size; writes `_complete` last."""
        existing = self.names(name)
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if path.is_file() and existing.get(relative) != path.stat().st_size:
                self.put(f"{name}/{relative}", path.read_bytes())
        if "_complete" not in existing:
            self.put(f"{name}/_complete", b"")

    def _locate(self, name: str) -> tuple[Any, str]:
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
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),  # the caller retries, and keeps working meanwhile
    )
    return files, (parts.netloc + parts.path).rstrip("/")


def _write_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file(path, lambda temporary: temporary.write_bytes(data))


class _named:
    """Turns an error of the store's library into a StorageError that names the store."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | ValueError | ImportError) and not isinstance(error, StorageError):
            raise StorageError(f"storage {self.uri.partition('?')[0]}: {' '.join(str(error).split())[:300]}") from error
