"""Which of the repository's files a Python process loads: the import closure of its root modules, found by parsing the files."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from experiments.config.errors import ConfigError
from experiments.config.paths import runs_root
from tasks.sweep.kept_imports import kept_imports


@dataclass(frozen=True)
class Module:
    """A module or package on disk."""

    name: str
    path: Path | None  # None: a folder without __init__.py
    folders: tuple[Path, ...] = ()  # of a package: where its submodules are

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.folders else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Imports:
    """Absolute dotted names that a file imports. `from a import b` gives a and a.b, since b may be a module or a name in a."""

    at_load: tuple[str, ...]
    in_functions: tuple[str, ...]


class SourceTree:
    """Finds the files of modules. `packages`: dotted name -> folders of its submodules, of which the first with the module counts."""

    def __init__(self, packages: Mapping[str, Sequence[Path]]) -> None:
        self._packages = {name: tuple(folders) for name, folders in packages.items()}
        self._known: dict[str, Module | None] = {}

    def find(self, name: str) -> Module | None:
        """The module of this name; None if it belongs to none of the packages."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Module | None:
        if name in self._packages:
            folders = self._packages[name]
            initial = folders[0] / "__init__.py"
            return Module(name, initial if initial.is_file() else None, folders)
        parent_name, _, last = name.rpartition(".")
        parent = self.find(parent_name) if parent_name else None
        if parent is None or not last:
            return None
        for folder in parent.folders:
            if (initial := folder / last / "__init__.py").is_file():
                return Module(name, initial, (folder / last,))
            if (path := folder / f"{last}.py").is_file():
                return Module(name, path)
        spread = tuple(folder / last for folder in parent.folders if (folder / last).is_dir())
        return Module(name, None, spread) if spread else None


def import_closure(
    tree: SourceTree, roots: Sequence[str], skip_in_functions: Callable[[str], bool] = lambda name: False
) -> dict[str, Path]:
    """Dotted name -> file of the roots, every module of `tree` that they import, and the packages that hold them.

    Imports inside functions count, except those for which `skip_in_functions(name)` is true. Imports under `if TYPE_CHECKING` do not.
    Raises ConfigError, which names it, for a root that does not exist or a file that is not valid Python.
    """
    for root in roots:
        if tree.find(root) is None:
            raise ConfigError.one("code", None, root, "there is no such module", "give the name of a file among the code")
    closure: dict[str, Path] = {}
    visited: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        module = tree.find(name)
        if module is None:  # a library's module, or a name in a module
            continue
        pending.append(name.rpartition(".")[0])  # Python loads a package before what is in it
        if module.path is None:
            continue
        closure[name] = module.path
        imports = imports_of(module.path, module.package)
        pending += imports.at_load
        pending += [each for each in imports.in_functions if not skip_in_functions(each)]
    kept_imports(runs_root()).save()
    return dict(sorted(closure.items()))


def imports_of(path: Path, package: str) -> Imports:
    """What the file imports. Relative imports start from `package`. Raises ConfigError, with file and line, if it is not valid Python."""
    try:
        return _imports_in(path.read_bytes(), package)
    except SyntaxError as error:
        raise ConfigError.one(path, error.lineno, "", f"is not Python: {error.msg}", "run it with python to see where") from error
    except ValueError as error:  # a null byte
        raise ConfigError.one(path, None, "", f"is not Python: {error}", "run it with python to see where") from error


@lru_cache(maxsize=4096)
def _imports_in(source: bytes, package: str) -> Imports:
    """Cached by content: a changed file is parsed again, and all trials and devices of a suite share the other files."""
    kept = kept_imports(runs_root())
    if (names := kept.find(source, package)) is not None:
        return Imports(*names)
    imports = list(_walk(ast.parse(source).body, package, in_function=False))
    at_load = dict.fromkeys(name for name, late in imports if not late)
    names = tuple(at_load), tuple(dict.fromkeys(name for name, late in imports if late and name not in at_load))
    kept.add(source, package, names)
    return Imports(*names)


def _walk(statements: Sequence[ast.AST], package: str, *, in_function: bool) -> Iterator[tuple[str, bool]]:
    """(imported name, whether a function imports it) for these statements and all nested ones."""
    for node in statements:
        match node:
            case ast.Import():
                yield from ((alias.name, in_function) for alias in node.names)
            case ast.ImportFrom():
                base = _absolute(node, package)
                yield base, in_function
                yield from ((f"{base}.{alias.name}", in_function) for alias in node.names)
            case ast.If() if _is_type_checking(node.test):
                yield from _walk(node.orelse, package, in_function=in_function)
            case _:
                inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                for block in ("body", "handlers", "orelse", "finalbody", "cases"):
                    yield from _walk(getattr(node, block, ()), package, in_function=inside)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Absolute name of the module after `from`: `..data` in package a.b.c is a.b.data."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    base = parents[: len(parents) - (node.level - 1)]
    return ".".join([*base, *([node.module] if node.module else [])])


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING")
