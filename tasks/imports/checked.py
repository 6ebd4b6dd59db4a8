"""JSON that another program wrote, checked against what is read of it; whatever else it holds does not matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from experiments.config.errors import ConfigError, Problem, dotted
from experiments.config.validate import say

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], content: Any, path: Path, line: int | None = None) -> M:
    """The content as `model`. Raises ConfigError with every key that is wrong; `line`: of the file, where it is known."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = [Problem(str(path), line, dotted(item["loc"]), *say([item])) for item in error.errors(include_url=False)]
        raise ConfigError(problems) from None


def json_object(path: Path, text: str) -> dict[str, Any] | None:
    """The object that a file holds; None where it is no JSON object. Raises ConfigError, with the line, for JSON that is broken off."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError.one(path, error.lineno, "", f"is not JSON ({error.msg})", "give the file as its program wrote it") from None
    return content if isinstance(content, dict) else None


def scalars(content: Any, prefix: str = "") -> dict[str, Any]:
    """Text, numbers and truth values by their dotted names, of an object and the objects in it; lists and null are left out."""
    found: dict[str, Any] = {}
    for name, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, dict):
            found |= scalars(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | bool):
            found[f"{prefix}{name}"] = value
    return found
