"""`make test-gaudi` runs this folder twice: in .venv-gaudi, where the device and optimum-habana are, and in .venv, where the flow is.

`make test` runs none of it: .venv has neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

_FLOW = ["test_gaudi_cluster.py", "test_gaudi_sweep.py"]
if find_spec("habana_frameworks") is not None:
    collect_ignore = _FLOW
else:
    wanted = bool(os.environ.get("SWEEPBENCH_GAUDI"))
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name not in _FLOW or not wanted]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those made for tests, too."""
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(Path(__file__).parents[1] / "workloads_for_tests"))


@pytest.fixture(autouse=True)
def _no_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a step's operations takes longer than the steps of these tests; the trials in processes of their own do count."""
    from experiments.workloads.bridgetower.workload import BridgeTower

    monkeypatch.setattr(BridgeTower, "flops_per_sample", lambda self: None)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small drawn data set with its tokenizer."""
    from experiments.datasets import scenes

    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=96, validation_rows=32, seed=0, max_size=128)
    return folder
