"""YAML without surprises: plain data, each key once, and the line of every value kept for error messages.

Plain scalars are read as YAML 1.2 does (core schema): `1e-3` is a number, `no`, `on`, `1:30` and `2024-01-01` are text, `010` is ten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from experiments.config.errors import ConfigError, KeyPath, Problem, dotted

MAX_BYTES = 1 << 20
MAX_DEPTH = 32


@dataclass(frozen=True)
class Document:
    """A file's data and the line (from 1) on which each key or list item of it stands."""

    path: Path
    data: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line(self, key: KeyPath) -> int:
        """Line of `key`, or of the nearest thing around it that is in the file."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)

    def problem(self, key: KeyPath, problem: str, hint: str) -> Problem:
        """A problem at `key`."""
        return Problem(str(self.path), self.line(key), dotted(key), problem, hint)


def load(path: Path) -> Document:
    """Read a YAML file. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError.one(path, None, "", f"cannot be read ({error.strerror})", "name a YAML file") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError.one(path, None, "", f"is larger than {MAX_BYTES} bytes", "a suite or pool file is a few kilobytes: split it")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError.one(path, line, "", "is not UTF-8 text", "save it as UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Document:
    """Read YAML text; `path` is for messages. Raises ConfigError."""
    document = _parsed(text, path)
    return replace(document, data=deepcopy(document.data))  # its own: whoever changes it changes nobody else's


@lru_cache(maxsize=64)  # a command reads the same suites again and again, and PyYAML takes a tenth of a second for one
def _parsed(text: str, path: Path) -> Document:
    try:
        loader = _Composer(text, path)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context == "while scanning a simple key":  # its colon is missing: seen where the next thing begins, lines later
            mark = error.context_mark or mark
        what = " ".join(filter(None, [error.context, error.problem]))
        hint = "use spaces, not tabs" if "'\\t'" in what else "check the indentation, quotes and colons there"
        raise ConfigError.one(path, mark.line + 1 if mark else None, "", f"is not valid YAML: {what}", hint) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError.one(path, line, "", "holds a character that YAML does not allow", "remove the control character") from None
    lines: dict[KeyPath, int] = {}
    data = None if node is None else _build(node, (), lines, path)
    return Document(path, data, lines)


def scalar(text: str) -> Any:
    """A plain scalar as a YAML file would have it, for `--set key=value`: 0 is a number, bf16 is text, null is None."""
    try:
        node = yaml.ScalarNode(_resolve(text), text)
        return _scalar(node, (), Path("command line"))
    except ConfigError:
        return text


def is_text(text: str) -> bool:
    """False for a text with a lone surrogate: what "\\ud800" in quotes, or an argument that is not UTF-8, becomes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# YAML 1.2 core schema; PyYAML's own resolver follows YAML 1.1, where `1e-3` is text and `no` is false
_PLAIN = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z")),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")),
    ("int", re.compile(r"(?:[-+]?[0-9]{1,400}|0x[0-9a-fA-F]{1,400}|0o[0-7]{1,400})\Z")),
    ("float", re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")),
)


def _resolve(text: str) -> str:
    return "tag:yaml.org,2002:" + next((name for name, pattern in _PLAIN if pattern.match(text)), "str")


class _Composer(yaml.SafeLoader):
    """Composes nodes only (nothing is constructed), refuses anchors and aliases, resolves plain scalars as YAML 1.2."""

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text)
        self._path, self._depth = path, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError.one(self._path, line, "", f"alias *{event.anchor} is not allowed", "write the value out")
        if getattr(event, "anchor", None):
            raise ConfigError.one(self._path, line, "", f"anchor &{event.anchor} is not allowed", "write the value where it is used")
        if self._depth >= MAX_DEPTH:
            raise ConfigError.one(self._path, line, "", f"is nested more than {MAX_DEPTH} deep", "no file here needs that")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _resolve(value)
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


def _build(node: yaml.Node, key: KeyPath, lines: dict[KeyPath, int], path: Path) -> Any:
    lines.setdefault(key, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        data: dict[str, Any] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode) or name_node.tag != "tag:yaml.org,2002:str":
                key_text = name_node.value if isinstance(name_node, yaml.ScalarNode) else "a list or mapping"
                raise ConfigError.one(path, line, dotted(key), f"key {key_text} is not text", "put the key in quotes")
            name = str(_scalar(name_node, key, path))
            if name in data:
                first = lines[(*key, name)]
                raise ConfigError.one(
                    path, line, dotted((*key, name)), f"duplicate key, first given on line {first}", "keep one of the two"
                )
            lines[(*key, name)] = line
            data[name] = _build(value_node, (*key, name), lines, path)
        return data
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_build(item, (*key, number), lines, path) for number, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, key, path)
    raise _unknown_tag(node, key, path)


def _scalar(node: yaml.ScalarNode, key: KeyPath, path: Path) -> Any:
    text, kind = node.value, node.tag.removeprefix("tag:yaml.org,2002:")
    try:
        match kind:
            case "str" if is_text(text):
                return text
            case "str":
                line = node.start_mark.line + 1 if node.start_mark else None
                raise ConfigError.one(path, line, dotted(key), "holds half of a character, which no file can", "write the whole character")
            case "null":
                return None
            case "bool":
                return {"true": True, "false": False}[text.lower()]
            case "int":
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            case "float":
                value = float(text)
                if math.isfinite(value):
                    return value
    except (ValueError, KeyError):
        pass
    else:
        if kind != "float":
            raise _unknown_tag(node, key, path)
    line = node.start_mark.line + 1 if node.start_mark else None
    raise ConfigError.one(path, line, dotted(key), f"{text[:40]!r} is not a finite {kind}", "write a number within range")


def _unknown_tag(node: yaml.Node, key: KeyPath, path: Path) -> ConfigError:
    return ConfigError.one(path, node.start_mark.line + 1, dotted(key), f"tag {node.tag} is not allowed", "write plain values, without `!`")
