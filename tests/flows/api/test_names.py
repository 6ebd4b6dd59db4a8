"""sweepbench.py names what flows/api offers, and nothing in the repository needs it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import flows.api
import sweepbench

ROOT = Path(__file__).resolve().parents[3]


def test_it_has_the_names_of_the_api_and_no_code_of_its_own() -> None:
    assert sweepbench.__all__ == flows.api.__all__ == sorted(flows.api.__all__)
    assert all(getattr(sweepbench, name) is getattr(flows.api, name) for name in flows.api.__all__)


def test_everything_offered_says_what_it_does() -> None:
    silent = [name for name in sweepbench.__all__ if not inspect.getdoc(getattr(sweepbench, name))]
    silent += [
        name for name, member in vars(sweepbench.Sweep).items() if inspect.isfunction(member) and name[0] != "_" and not member.__doc__
    ]
    assert silent == []


def test_no_floor_imports_it() -> None:
    files = (file for floor in ("flows", "tasks", "cluster", "experiments") for file in (ROOT / floor).rglob("*.py"))
    assert [file for file in files if re.search(r"^\s*(import|from) sweepbench\b", file.read_text(), re.MULTILINE)] == [
        ROOT / "flows" / "api" / "__init__.py"  # in its docstring, as an example
    ]
