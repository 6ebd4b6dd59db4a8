"""Code that runs in a Python process of its own, which has imported nothing yet, or what many of them would: torch takes three seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Imports what its arguments name, and runs code in a process forked then for each request, told on a line of standard input
_FORKS = """
import importlib, json, os, sys, traceback

for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            for number, name, flags in ((0, "told", os.O_RDONLY), (1, "said", os.O_WRONLY), (2, "error", os.O_WRONLY)):
                os.dup2(os.open(os.path.join(request["folder"], name), flags), number)
            sys.stdin, sys.argv = open(0), ["-c", *request["arguments"]]
            sys.path[:0] = request["path"]
            exec(request["code"], {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run(code: str, *arguments: str, path: Path | None = None, told: str = "", **variables: str) -> list[str]:
    """The lines that it prints. `path`: a folder to import from; `told`: its standard input; `variables`: of its environment."""
    environment = {**os.environ, **variables}
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True, timeout=300, env=environment)
    return done.stdout.splitlines()


@dataclass(frozen=True)
class Forks:
    """A process that has made imports; what it runs is forked from it."""

    process: subprocess.Popen[str]
    folder: Path

    def run(self, code: str, *arguments: str, path: Path | None = None, told: str = "") -> list[str]:
        """As `run`, which a process without the imports does."""
        for name, text in (("told", told), ("said", ""), ("error", "")):
            (self.folder / name).write_text(text)
        request = {"code": code, "arguments": arguments, "path": [str(path)] if path else [], "folder": str(self.folder)}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "0\n", (self.folder / "error").read_text()
        return (self.folder / "said").read_text().splitlines()


@contextmanager
def forks_of(*modules: str, folder: Path) -> Iterator[Forks]:
    """Processes that have imported these modules. `folder`: for what they are told and say."""
    with subprocess.Popen([sys.executable, "-c", _FORKS, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Forks(process, folder)
        finally:
            process.kill()  # it keeps nothing, and may be waiting for what a test left
