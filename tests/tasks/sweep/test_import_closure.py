"""What counts as an import, on packages of the tests' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from tasks.sweep import import_closure as import_closure_module
from tasks.sweep.import_closure import Imports, SourceTree, import_closure, imports_of
from tasks.sweep.kept_imports import kept_imports


@pytest.fixture(autouse=True)
def _parsed_anew() -> None:
    """Files are parsed once a process, by content: each test sees the parser itself."""
    import_closure_module._imports_in.cache_clear()
    kept_imports.cache_clear()


def tree(folder: Path, **files: str) -> SourceTree:
    """A package `app`; the names of its files have `__` for `/`."""
    for name, text in {"initial": "", **files}.items():
        path = folder / "app" / ("__init__.py" if name == "initial" else name.replace("__", "/").replace("/initial", "/__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SourceTree({"app": [folder / "app"]})


def closure(folder: Path, root: str = "app.main", **files: str) -> set[str]:
    return set(import_closure(tree(folder, **files), [root]))


def read(folder: Path, text: str, package: str = "app.inner") -> Imports:
    path = folder / "read.py"
    path.write_text(text)
    return imports_of(path, package)


@pytest.mark.parametrize(
    ("text", "at_load"),
    [
        ("import a.b, c as d", ("a.b", "c")),
        ("from a.b import c as x, d", ("a.b", "a.b.c", "a.b.d")),
        ("from a import *", ("a", "a.*")),
        ("from . import one", ("app.inner", "app.inner.one")),
        ("from .one import x", ("app.inner.one", "app.inner.one.x")),
        ("from ..two import x", ("app.two", "app.two.x")),
        ("try:\n    import a\nexcept ImportError:\n    import b\nelse:\n    import c\nfinally:\n    import d", ("a", "b", "c", "d")),
        ("if x:\n    import a\nelif y:\n    import b\nelse:\n    import c", ("a", "b", "c")),
        ("for i in x:\n    import a\nelse:\n    import b\nwhile x:\n    import c\nwith x:\n    import d", ("a", "b", "c", "d")),
        ("class C:\n    import a", ("a",)),
        ("match x:\n    case 1:\n        import a", ("a",)),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nelse:\n    import b", ("typing", "typing.TYPE_CHECKING", "b")),
        ("import typing\nif typing.TYPE_CHECKING:\n    import a", ("typing",)),
        ("'import a'\nx = 'from a import b'  # import c", ()),
    ],
)
def test_imports_that_run_when_the_module_is_loaded(tmp_path: Path, text: str, at_load: tuple[str, ...]) -> None:
    assert read(tmp_path, text) == Imports(at_load, ())


def test_imports_inside_functions_are_told_apart(tmp_path: Path) -> None:
    text = "import a\nasync def f():\n    import b\nclass C:\n    def g(self):\n        if x:\n            def h(): import c, a\n"
    assert read(tmp_path, text) == Imports(("a",), ("b", "c"))


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    assert read(tmp_path, "import a").at_load == ("a",)
    assert read(tmp_path, "import b").at_load == ("b",)


def test_submodules_are_followed_and_names_and_libraries_are_not(tmp_path: Path) -> None:
    files = {"main": "import os\nfrom app import one\nfrom app.two import value", "one": "", "two": "value = 1", "three": ""}
    assert closure(tmp_path, **files) == {"app", "app.main", "app.one", "app.two"}


def test_circles_end(tmp_path: Path) -> None:
    assert closure(tmp_path, main="import app.one", one="import app.main") == {"app", "app.main", "app.one"}


def test_packages_on_the_way_are_loaded_with_what_they_import(tmp_path: Path) -> None:
    files = {"main": "import app.deep.inner.leaf", "deep__initial": "from app import told", "deep__inner__leaf": "", "told": ""}
    assert closure(tmp_path, **files) == {"app", "app.main", "app.deep", "app.deep.inner.leaf", "app.told"}  # inner has no __init__.py


def test_a_package_comes_before_a_file_of_its_name(tmp_path: Path) -> None:
    found = import_closure(tree(tmp_path, main="import app.twice", twice="", twice__initial=""), ["app.main"])
    assert found["app.twice"] == tmp_path / "app" / "twice" / "__init__.py"


def test_the_first_folder_that_has_a_module_gives_it(tmp_path: Path) -> None:
    for name in ("one/a.py", "two/a.py", "two/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = import_closure(SourceTree({"app": [tmp_path / "one", tmp_path / "two"]}), ["app.a", "app.b"])
    assert found == {"app.a": tmp_path / "one/a.py", "app.b": tmp_path / "two/b.py"}


def test_what_functions_import_can_be_left_out_and_what_is_imported_at_load_cannot(tmp_path: Path) -> None:
    made = tree(tmp_path, main="import app.two\ndef f():\n    import app.one, app.two", one="", two="")
    assert set(import_closure(made, ["app.main"], lambda name: name in ("app.one", "app.two"))) == {"app", "app.main", "app.two"}


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"app\.none"):
        closure(tmp_path, root="app.none")
