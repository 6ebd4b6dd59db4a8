"""The lines of a journal: a record as JSON, with a checksum that continues the line before (see journal.py)."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

from cluster.journal.errors import JournalError

Record = dict[str, Any]


def encode(record: Record, previous: int) -> tuple[bytes, int]:
    """One line (bytes, newline included) and its CRC. A number that is not finite becomes null, with `<name>_text` beside it."""
    return wrap(to_json(record), previous)


def to_json(record: Record) -> bytes:
    """A record as it stands in its line, without the checksum. Raises ValueError for a number inside a value that is not finite."""
    clean: Record = {}
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            clean[name] = None
            clean[f"{name}_text"] = str(value)
        else:
            clean[name] = value
    return json.dumps(clean, separators=(",", ":"), allow_nan=False).encode()


def wrap(body: bytes, previous: int) -> tuple[bytes, int]:
    """The line that holds a record's JSON, newline included, and its CRC."""
    crc = zlib.crc32(body, previous)
    return b'%b,"crc":"%08x"}\n' % (body[:-1], crc), crc


def unwrap(line: bytes, previous: int, path: Path, number: int) -> tuple[bytes, int]:
    """The JSON in one line, without the checksum, and the line's CRC. Raises JournalError if the CRC does not match."""
    head, mark, tail = line.rpartition(b',"crc":"')
    if not mark or len(tail) < 11 or tail[8:] != b'"}\n':
        raise JournalError(path, number, "is not a journal line")
    body = head + b"}"
    crc = zlib.crc32(body, previous)
    if tail[:8] != b"%08x" % crc:
        raise JournalError(path, number, f"checksum is {tail[:8].decode(errors='replace')}, the content gives {crc:08x}")
    return body, crc


def decode(line: bytes, previous: int, path: Path, number: int) -> tuple[Record, int]:
    """The record in one line and the line's CRC. Raises JournalError if the CRC does not match or the line is not a record."""
    body, crc = unwrap(line, previous, path, number)
    return parse(body, path, number), crc


def parse(body: bytes, path: Path, number: int) -> Record:
    """The record that a line's JSON is. Raises JournalError."""
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JournalError(path, number, f"is not JSON ({error})") from error
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise JournalError(path, number, "is no record: it has no kind")
    return record
