"""Reading YAML: what is refused, and that every refusal says where and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from experiments.config.errors import ConfigError
from experiments.config.strict import Strict
from experiments.config.validate import validate
from experiments.config.yaml_document import MAX_BYTES, load, parse, scalar


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, Path("a.yaml"))
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        (".5", 0.5),
        ("-2.", -2.0),
        ("010", 10),
        ("0x1F", 31),
        ("-7", -7),
        ("true", True),
        ("null", None),
        ("~", None),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        (".inf", ".inf"),
        ('"1e-3"', "1e-3"),
        ("'true'", "true"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"key: {text}", Path("a.yaml")).data["key"]
    assert found == value and type(found) is type(value)
    if text[0] not in "'\"":
        assert scalar(text) == value and type(scalar(text)) is type(value)


def test_lines_of_keys_and_items() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n", Path("a.yaml"))
    assert document.data == {"a": {"b": 1, "c": ["x", {"y": 2}]}}
    assert [document.line(key) for key in [("a",), ("a", "b"), ("a", "c", 0), ("a", "c", 1, "y"), ("a", "c", "missing")]] == [1, 2, 4, 5, 3]


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("a: 1\nb: &x [1]\n", 2, ["anchor &x", "write the value"]),
        ("a: 1\nb: *x\n", 2, ["alias *x", "write the value out"]),
        ("a: &a [l]\nb: &b [*a, *a]\n", 1, ["anchor"]),
        ("a:\n  b: 1\n  b: 2\n", 3, ["a.b", "duplicate key", "line 2", "keep one"]),
        ("a: !!python/object/apply:os.system [ls]\n", 1, ["tag", "not allowed"]),
        ("a: !!binary aGk=\n", 1, ["tag", "not allowed"]),
        ("a: !mine 3\n", 1, ["!mine", "not allowed"]),
        ("a: 1\n3: 2\n", 2, ["key 3 is not text", "quotes"]),
        ("a: 1\n? [x]\n: 2\n", 2, ["not text"]),
        ("a: 1e999\n", 1, ["a", "not a finite float"]),
        ("a: [1\nb: 2\n", 2, ["not valid YAML"]),
        ("a:\n\tb: 1\n", 2, ["not valid YAML", "tabs"]),
        ("a: 1\nb 2\n\nc: 3\n", 2, ["not valid YAML", "could not find expected ':'"]),
        ("a:\n  b: 1\n  c\n  d: 2\n", 3, ["not valid YAML", "could not find expected ':'"]),
        ("a: 1\n---\nb: 2\n", 2, ["not valid YAML"]),
        ("a: 1\nb: \x07\n", 2, ["character"]),
        ('a: "\\ud800"\n', 1, ["a", "half of a character", "write the whole character"]),
        ('a: 1\n"\\ud800": 2\n', 2, ["half of a character"]),
        ('a: {!!int "3": 1}\n', 1, ["a: key 3 is not text"]),
        ("[" * 100 + "]" * 100, 1, ["nested more than 32"]),
    ],
)
def test_refused(text: str, line: int, parts: list[str]) -> None:
    error = refused(text)
    assert error.line == line
    assert str(error).startswith(f"a.yaml:{line}: ")
    for part in parts:
        assert part in str(error)


def test_a_document_that_is_changed_is_read_again_as_it_was() -> None:
    first = parse("a: {b: [1]}", Path("x.yaml"))
    first.data["a"]["b"].append(2)
    assert parse("a: {b: [1]}", Path("x.yaml")).data == {"a": {"b": [1]}}


def test_merge_keys_are_plain_keys() -> None:
    assert parse("<<: {a: 1}\n", Path("a.yaml")).data == {"<<": {"a": 1}}


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with pytest.raises(ConfigError, match=r"a\.yaml: cannot be read \(No such file or directory\); name a YAML file"):
        load(path)
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:2: is not UTF-8 text; save it as UTF-8"):
        load(path)
    path.write_text("a: " + "x" * (MAX_BYTES - 3))
    assert len(load(path).data["a"]) == MAX_BYTES - 3
    path.write_text("a: " + "x" * (MAX_BYTES - 2))
    with pytest.raises(ConfigError, match=r"is larger than 1048576 bytes; .*split"):
        load(path)


class Inner(Strict):
    colour: Literal["red", "green"]
    size: int = Field(default=1, ge=1)


class Outer(Strict):
    name: str
    parts: list[Inner] = Field(default_factory=list)
    amount: int | Literal["max"] = 1
    by_name: dict[str, Inner] = Field(default_factory=dict)


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(Outer, parse(text, Path("a.yaml")))
    return str(caught.value).splitlines()


def test_all_errors_of_a_schema_are_listed_with_their_places() -> None:
    found = problems(
        "parts:\n  - colour: gren\n  - {colour: red, size: 0, wieght: 1}\namount: [1]\nby_name:\n  x:\n    colur: red\nnmae: y\n"
    )
    assert sorted(found) == sorted(
        [
            "a.yaml:2: parts[0].colour: is 'gren'; should be 'red' or 'green'; did you mean 'green'?",
            "a.yaml:3: parts[1].size: is 0; should be at least 1",
            "a.yaml:3: parts[1].wieght: unknown key; known: colour, size",
            "a.yaml:4: amount: is a list; should be a whole number or 'max'",
            "a.yaml:6: by_name.x.colour: is missing; add it",
            "a.yaml:7: by_name.x.colur: unknown key; did you mean 'colour'? known: colour, size",
            "a.yaml:1: name: is missing; add it",
            "a.yaml:8: nmae: unknown key; did you mean 'name'? known: name, parts, amount, by_name",
        ]
    )


def test_types_are_not_converted() -> None:
    assert problems("name: 3\n") == ["a.yaml:1: name: is 3; should be text"]
    assert problems("name: x\namount: '3'\n") == ["a.yaml:2: amount: is '3'; should be a whole number or 'max'"]
    assert problems("name: x\namount: 3.0\n") == ["a.yaml:2: amount: is 3.0; should be a whole number or 'max'"]
    assert problems("name: x\namount: true\n") == ["a.yaml:2: amount: is true; should be a whole number or 'max'"]
    assert problems("name: x\nparts:\n") == ["a.yaml:2: parts: is empty; should be a list such as [a, b]"]


@pytest.mark.parametrize(("text", "what"), [("", "is empty"), ("- a\n", "does not hold `key: value` lines"), ("text\n", "does not hold")])
def test_no_mapping(text: str, what: str) -> None:
    (found,) = problems(text)
    assert found.startswith(f"a.yaml:1: {what}") and "known keys: name, parts, amount, by_name" in found
