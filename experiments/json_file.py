"""JSON files of a sweep, read into models: whatever is wrong with a file is one error, which names it. And their seal.

A seal is a checksum over a file's content, which tells whether it was changed after it was written. It is no signature: whoever means to
forge a file can compute it anew. It finds bits that flipped, and files that were edited or put together by hand.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from experiments.canonical_json import canonical_json
from experiments.config.errors import DamagedFile, dotted

SEAL = "seal"  # its key in a file
_SEAL_AT_END = re.compile(rb',\s*"seal":\s*"[0-9a-f]{64}"\s*\}\s*\Z')

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def seal_of(content: Mapping[str, Any]) -> str:
    """64 hex digits: the SHA-256 of the content as canonical JSON, its seal left out. Raises ValueError for what JSON has not."""
    own = {name: value for name, value in content.items() if name != SEAL}
    return hashlib.sha256(canonical_json(own).encode()).hexdigest()


def sealed_text(model: BaseModel) -> str:
    """A model as JSON with its seal: what `read_model` reads."""
    content = json.loads(model.model_dump_json())
    return json.dumps({**content, SEAL: seal_of(content)}, indent=1, ensure_ascii=False)


def read_model(path: Path, kind: type[M], hint: str) -> M | None:
    """The model in a JSON file; None where there is no such file. Raises DamagedFile. `hint`: what to do about a damaged one."""
    return read_file(path, lambda data: model_in(data, unsealed(json.loads(data.decode())), kind), hint)


def parse_model(data: bytes, kind: type[M], source: Path, hint: str) -> M:
    """The model in a file's bytes. Raises DamagedFile, which names `source`."""
    return _parsed(source, data, lambda data: model_in(data, unsealed(json.loads(data.decode())), kind), hint)


def read_file(path: Path, parse: Callable[[bytes], T], hint: str) -> T | None:
    """What `parse` makes of a file's bytes; None where there is no such file.

    Raises DamagedFile for a file that cannot be read and for every error that bytes can cause: ValueError (such as UnicodeDecodeError,
    JSON's and pydantic's), KeyError, TypeError, RecursionError.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise DamagedFile(path, "", "is a link to nothing", hint) from None
        return None
    except OSError as error:
        raise DamagedFile(path, "", f"cannot be read ({error.strerror})", hint) from error
    return _parsed(path, data, parse, hint)


def _parsed(path: Path, data: bytes, parse: Callable[[bytes], T], hint: str) -> T:
    try:
        return parse(data)
    except ValidationError as error:
        raise DamagedFile(path, *_said(error), hint) from error
    except UnicodeDecodeError as error:
        raise DamagedFile(path, f"byte {error.start + 1}", "is not UTF-8", hint) from error
    except json.JSONDecodeError as error:
        problem = "is empty" if not data.strip() else f"is not JSON ({error.msg})"
        raise DamagedFile(path, f"line {error.lineno}" if data.strip() else "", problem, hint) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedFile(path, "", problem, hint) from error


def unsealed(content: Any) -> dict[str, Any]:
    """A file's content without its seal. Raises ValueError where it is no object, or its seal does not hold."""
    if not isinstance(content, dict):
        raise ValueError("does not hold an object ({...})")
    own = {name: value for name, value in content.items() if name != SEAL}
    if SEAL in content and content[SEAL] != seal_of(own):
        raise ValueError("was changed after it was written: its seal does not hold")
    return own


def validated(content: Mapping[str, Any], kind: type[M]) -> M:
    """The model of a file's content. Raises ValidationError."""
    return kind.model_validate_json(json.dumps(content))  # as JSON: what is strict differs from Python objects'


def model_in(data: bytes, content: Mapping[str, Any], kind: type[M]) -> M:
    """The model of a file's `content`, which is that of its bytes without their seal. Raises ValidationError.

    Reads the bytes themselves where the seal stands at their end, as `sealed_text` writes it: to write thousands of trials as JSON once
    more takes as long as to read them.
    """
    end = _SEAL_AT_END.search(data, max(0, len(data) - 200))
    return kind.model_validate_json(data[: end.start()] + b"}") if end else validated(content, kind)


def _said(error: ValidationError) -> tuple[str, str]:
    """(the first key that is wrong, what is wrong with it)."""
    first = error.errors(include_url=False)[0]
    more = f", and {error.error_count() - 1} more" if error.error_count() > 1 else ""
    said = {"missing": "is missing", "extra_forbidden": "is not known to this version"}
    return dotted(first["loc"]), said.get(first["type"], f"is {first['input']!r:.80}: {first['msg']}") + more
