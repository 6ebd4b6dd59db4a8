"""T5 in fused attention as it trains: recomputed and compiled, its losses are those of plain attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.journal.journal import JournalWriter, read_journal
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.datasets import texts
from experiments.trial import DataSource
from experiments.workloads import t5
from tests.trial_support import cpu_trial

pytestmark = pytest.mark.usefixtures("one_thread")

GIVEN: dict[str, Any] = {"batch_size": 4, "seed": 7, "steps": 2, "warmup_steps": 1, "threads": 1, "learning_rate": 1e-3} | {
    "evaluate": False,
    "source_length": 48,
    "target_length": 8,
}


def losses(data: DataSource, folder: Path, **values: Any) -> list[float]:
    """Of each step of a trial, warm-up included."""
    folder.mkdir()
    trial = cpu_trial("t5", t5.Parameters(**{**GIVEN, **values}).model_dump(mode="json"), data)
    with Recorder(JournalWriter(folder / "journal.jsonl", 1)) as recorder:
        TrialSession(trial, Ranks(), recorder, folder).run()
    return [step["loss"] for step in read_journal(folder / "journal.jsonl").steps]


def test_it_learns_the_same_recomputed_in_part_and_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dynamo's graphs, run as they are: no C++ compiler is called."""
    monkeypatch.setattr(Cpu, "compile_backend", "eager")
    texts.build(tmp_path / "written", rows=32, validation_rows=16, seed=0)
    data = DataSource(uri=str(tmp_path / "written"), fingerprint="f", tokenizer=str(tmp_path / "written" / "tokenizer"))
    expected = losses(data, tmp_path / "eager", attention="eager")
    assert len(expected) == 3 and expected == pytest.approx([8.8] * 3, abs=0.4)
    for name, values, rel in (
        ("recomputed", {"activation_checkpointing": "selective"}, 1e-5),
        ("compiled", {"activation_checkpointing": "selective", "compile": "layer", "precision": "bf16"}, 2e-3),
    ):
        assert losses(data, tmp_path / name, attention="sdpa", **values) == pytest.approx(expected, rel=rel), name
    torch.compiler.reset()
