"""Validate a document against a pydantic model; pydantic's errors as problems with line and hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from experiments.config.errors import ConfigError, KeyPath, Problem, choose
from experiments.config.yaml_document import Document

M = TypeVar("M", bound=BaseModel)


def problems_of(error: ValidationError, document: Document, model: type[BaseModel], prefix: KeyPath = ()) -> list[Problem]:
    """Every error of `model.model_validate(<the part of the document at prefix>)`, one Problem for each key."""
    by_key: dict[KeyPath, list[Any]] = {}
    for item in error.errors(include_url=False):
        by_key.setdefault(_in_document(document, prefix, item), []).append(item)
    return [document.problem(key, *_say(items, key, model)) for key, items in by_key.items()]


def validate(model: type[M], document: Document) -> M:
    """The document as `model`. Raises ConfigError with all problems."""
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "does not hold `key: value` lines"
        raise ConfigError.one(document.path, 1, "", what, f"known keys: {', '.join(model.model_fields)}")
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise ConfigError(problems_of(error, document, model)) from None


def say(items: Sequence[Any]) -> tuple[str, str]:
    """Problem and hint of pydantic's errors about one value; those of a union's members become one."""
    first = items[0]
    if first["type"] == "missing":
        return "is missing", "add it"
    if first["type"] in ("value_error", "assertion_error"):
        return first["msg"].partition(", ")[2] or first["msg"], ""
    expected = list(dict.fromkeys(_expected(item) for item in items))
    literals = [name for item in items if item["type"] == "literal_error" for name in re.findall(r"'([^']*)'", item["ctx"]["expected"])]
    near = difflib.get_close_matches(str(first["input"]), literals, n=1, cutoff=0.6)
    hint = f"should be {' or '.join(expected)}" + (f"; did you mean {near[0]!r}?" if near else "")
    return f"is {_shown(first['input'])}", hint


_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list such as [a, b]",
    "dict_type": "`key: value` lines",
    "model_type": "`key: value` lines",
    "none_required": "null",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "too_short": "a list of at least {min_length}",
    "too_long": "at most {max_length} long",
    "string_too_long": "text of at most {max_length} characters",
    "string_too_short": "text of at least {min_length} characters",
}


# a pattern -> what it takes, in words
_PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]{0,63}$": "up to 64 lower-case letters, digits, - and _, the first a letter or digit",
    r"\S": "text that is not blank",
    r"^[a-z0-9-]+/[a-z0-9-]+$": "lower-case letters, digits and -, with one / between them: kind/name",
}


def _expected(item: Any) -> str:
    text = _EXPECTED.get(item["type"])
    if item["type"] == "string_pattern_mismatch":
        pattern = item["ctx"]["pattern"]
        return _PATTERNS.get(pattern, f"text like {pattern}")
    return text.format(**item.get("ctx", {})) if text else str(item["msg"]).removeprefix("Input should be ")


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        if not value:
            return "an empty list" if isinstance(value, list) else "an empty mapping"
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(value) if isinstance(value, str) else {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _say(items: Sequence[Any], key: KeyPath, model: type[BaseModel]) -> tuple[str, str]:
    if items[0]["type"] == "extra_forbidden":
        return "unknown key", choose(key[-1], _keys_at(model, key[:-1]))
    return say(items)


def _in_document(document: Document, prefix: KeyPath, item: Any) -> KeyPath:
    """pydantic's location without the parts that name union members, which are not in the file."""
    key, data = prefix, document.data
    for part in prefix:
        data = data[part]
    for part in item["loc"]:
        if (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            key, data = (*key, part), data[part]
        elif item["type"] == "missing" and part == item["loc"][-1]:
            key = (*key, part)
    return key


def _keys_at(model: type[BaseModel], key: KeyPath) -> list[str]:
    """The keys that `model` knows at `key`: walks models, lists and mappings of models."""
    current: Any = model
    for part in key:
        if isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            current = _model_in(current.model_fields[str(part)].annotation)
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, (_model_in(part) for part in getattr(annotation, "__args__", ()))), None)
