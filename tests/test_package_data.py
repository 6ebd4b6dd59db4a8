"""An installation that is not a checkout has the files that the code reads beside its modules."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_READ = {".py", ".Containerfile"}  # by no module; images are built in a checkout


def test_every_file_beside_the_modules_is_package_data() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    files = [path for floor in ("flows", "tasks", "cluster", "experiments") for path in (ROOT / floor).rglob("*") if path.is_file()]
    # In __pycache__ other processes may be writing, under names of the moment
    beside = [path.relative_to(ROOT) for path in files if path.suffix not in NOT_READ and path.parent.name != "__pycache__"]
    assert any(path.name == "page.js" for path in beside) and any(path.name == "peaks.csv" for path in beside)
    assert [str(path) for path in beside if not any(fnmatch(path.name, pattern) for pattern in patterns)] == []
