"""The servers of `make up`, on ports and in a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.stack.settings import PORTS
from tests.ports_support import free_ports
from tests.stack_support import Stack


@contextmanager
def stack(root: Path) -> Iterator[Stack]:
    """The stack of a repository without deployments, up inside the block."""
    variables = {variable: str(port) for (variable, _), port in zip(PORTS.values(), free_ports(len(PORTS)), strict=True)}
    made = Stack(root, {**variables, "SWEEPBENCH_RUNS": str(root / "runs")})
    try:
        bring_up(made)
        yield made
    finally:
        made.command("down")


def bring_up(made: Stack) -> None:
    """Start what does not run. Raises AssertionError with what `up` said where it could not."""
    up = made.command("up")
    assert up.returncode == 0, up.stdout + up.stderr
