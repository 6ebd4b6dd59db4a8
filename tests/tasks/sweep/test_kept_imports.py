"""What files import is kept by their content, so that a command parses only files that no command has parsed before."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from experiments.config.paths import runs_root
from tasks.sweep import import_closure, kept_imports
from tasks.sweep.import_closure import SourceTree
from tasks.sweep.kept_imports import KeptImports

NAMES = (("a", "a.b"), ("c",))


@pytest.fixture
def runs() -> Path:
    runs_root().mkdir(exist_ok=True)
    return runs_root()


def kept(runs: Path, *sources: bytes) -> KeptImports:
    entries = KeptImports(runs)
    for source in sources:
        entries.add(source, "p", NAMES)
    entries.save()
    return entries


def test_an_entry_is_of_one_content_and_package(runs: Path) -> None:
    kept(runs, b"import a")
    again = KeptImports(runs)
    assert again.find(b"import a", "p") == NAMES
    assert (again.find(b"import b", "p"), again.find(b"import a", "q")) == (None, None)


def test_nothing_is_kept_before_there_are_results() -> None:
    kept(runs_root(), b"import a")
    assert not runs_root().exists()


def test_entries_of_another_parser_and_damaged_ones_count_as_none(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(runs, b"import a")
    with monkeypatch.context() as other:
        other.setattr(kept_imports, "_code", lambda: "another")
        assert KeptImports(runs).find(b"import a", "p") is None
    path = runs / ".code" / "imports.json"
    path.write_text(path.read_text().replace("a.b", "a.x"))
    assert KeptImports(runs).find(b"import a", "p") is None


def test_of_too_many_those_that_were_needed_stay(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_imports, "MOST", 2)
    kept(runs, b"1", b"2")
    entries = KeptImports(runs)
    entries.find(b"2", "p")
    entries.add(b"3", "p", NAMES)
    entries.save()
    assert [KeptImports(runs).find(source, "p") is not None for source in (b"1", b"2", b"3")] == [False, True, True]


def test_a_second_command_parses_only_what_changed(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    for name, text in {"__init__": "", "main": "from app import one", "one": "from app import two", "two": "import os"}.items():
        (folder / f"{name}.py").write_text(text)
    parse, parsed = ast.parse, list[bytes]()

    def noted(source: Any) -> ast.Module:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(ast, "parse", noted)

    def command() -> tuple[set[str], set[bytes]]:
        """What it finds, and which files it parses."""
        import_closure._imports_in.cache_clear()
        kept_imports.kept_imports.cache_clear()
        parsed.clear()
        return set(import_closure.import_closure(SourceTree({"app": [folder]}), ["app.main"])), set(parsed)

    whole = {"app", "app.main", "app.one", "app.two"}
    assert command() == (whole, {b"", b"from app import one", b"from app import two", b"import os"})
    assert command() == (whole, set())
    (folder / "one.py").write_text("import sys")
    assert command() == (whole - {"app.two"}, {b"import sys"})
