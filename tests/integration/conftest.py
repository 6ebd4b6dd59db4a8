"""One real stack for all integration tests that need one: it takes half a minute to start and a gigabyte to keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.stack.settings import PORTS
from tests.ports_support import free_ports
from tests.shared_support import kept
from tests.stack_support import EXTRA, FLOW, PREFECT_YAML, Stack, goes_down


@pytest.fixture(scope="session")
def started_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("repository")
    (root / "tiny.py").write_text(FLOW)
    (root / "real.py").write_text('from flows.sweep import sweep\n\n__all__ = ["sweep"]\n')
    (root / "prefect.yaml").write_text(PREFECT_YAML)
    variables = {variable: str(port) for (variable, _), port in zip(PORTS.values(), free_ports(len(PORTS)), strict=True)}
    made = Stack(root, {**variables, "SWEEPBENCH_RUNS": str(root / "runs"), "SWEEPBENCH_EXTRA": str(EXTRA)})
    with kept("started_stack") as ends:
        ends.callback(made.command, "down")
        up = made.command("up")
        assert up.returncode == 0, up.stdout + up.stderr
        assert f"MLflow server: {made.settings.mlflow_url}" in up.stdout
        assert "deployment sweep/bridgetower" in up.stdout
        ends.callback(goes_down, made)
        yield made


@pytest.fixture(scope="session")
def stack(started_stack: Stack) -> Stack:
    """By the short name, which elsewhere is that of stacks that one test makes for itself."""
    return started_stack
