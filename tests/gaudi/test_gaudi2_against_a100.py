"""BERT, T5 and Stable Diffusion with the settings that their suites give Gaudi2, on the emulated device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.datasets import texts
from tests.gaudi_support import HABANA, SMALL, losses, run_here

TRAINED: dict[str, dict[str, Any]] = {
    "bert": {**SMALL, "sequence_length": 24, "precision": "bf16", "hpu_graphs": True},
    "t5": {**SMALL, "batch_size": 4, "source_length": 32, "target_length": 8, "activation_checkpointing": True},
}
INFERRED: dict[str, dict[str, Any]] = {
    "bert_inference": {"sequence_length": 24, "precision": "bf16", "engine": "optimum_habana", "hpu_graphs": True},
    "t5_inference": {"source_length": 32, "target_length": 8, "precision": "bf16", "engine": "optimum_habana"},
    "stable_diffusion": {"denoising_steps": 3, "precision": "bf16", "cast_weights": False, "autocast": True, "hpu_graphs": True},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    texts.build(folder, rows=32, validation_rows=8, seed=0)
    return folder


@pytest.mark.parametrize("workload", TRAINED)
def test_the_engine_learns_what_plain_torch_does(workload: str, written: Path, tmp_path: Path) -> None:
    values = TRAINED[workload]
    plain = losses(run_here(tmp_path / "plain", workload, written, **{**values, "hpu_graphs": False}))
    habana = losses(run_here(tmp_path / "habana", workload, written, **values, **HABANA))
    assert habana == pytest.approx(plain, rel=2e-3) and plain[-1] != pytest.approx(plain[0], rel=1e-3)


@pytest.mark.parametrize("workload", INFERRED)
def test_it_infers(workload: str, written: Path, tmp_path: Path) -> None:
    folder = None if workload == "stable_diffusion" else written
    journal = run_here(tmp_path, workload, folder, batch_size=2, steps=2, warmup_steps=2, **INFERRED[workload])
    assert len(journal.steps) == 4 and journal.window is not None and journal.window["trains"] is False
