"""Code that runs in a Python process of its own, which has imported nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(code: str, *arguments: str, path: Path | None = None, told: str = "", **variables: str) -> list[str]:
    """The lines that it prints. `path`: a folder to import from; `told`: its standard input; `variables`: of its environment."""
    environment = {**os.environ, **variables}
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True, timeout=300, env=environment)
    return done.stdout.splitlines()
