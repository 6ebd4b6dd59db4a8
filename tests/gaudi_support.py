"""Trials on the emulated Gaudi: one rank in this process, or the worker's entrypoint as a process, as a pool starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.journal.journal import Journal, JournalWriter, read_journal
from experiments import workloads
from experiments.atomic_file import atomic_write
from experiments.json_file import parse_model
from experiments.parameters import lazy_mode
from experiments.trial import DataSource, Trial, TrialResult

ROOT = Path(__file__).resolve().parents[1]
EXTRA = ROOT / "tests" / "workloads_for_tests"
LAZY = "PT_HPU_LAZY_MODE"
SMALL: dict[str, Any] = {"batch_size": 8, "steps": 4, "warmup_steps": 2, "evaluate": False, "learning_rate": 1e-3, "dataloader_workers": 0}
PAIRS: dict[str, Any] = {**SMALL, "model": "tiny", "text_length": 16, "evaluation_samples": 32}  # of BridgeTower
HABANA: dict[str, Any] = {"engine": "optimum_habana", "optimizer": "fused"}


def make_trial(workload: str, drawn: Path | None = None, key: str = "9" * 16, **parameters: Any) -> Trial:
    values = workloads.load(workload).Parameters(**parameters).model_dump(mode="json")
    data = DataSource(uri=str(drawn), fingerprint="drawn", tokenizer=str(drawn / "tokenizer")) if drawn else None
    return Trial(
        key=key,
        key_parts={},
        sweep_id="s",
        suite="s",
        workload=workload,
        pool="gaudi2-emulated",
        device="hpu",
        cell="c",
        repeat=1,
        index=0,
        axes={},
        parameters=values,
        data=data,
    )


@contextmanager
def mode(lazy: bool) -> Iterator[None]:
    """The mode that the device reads when it is opened."""
    before = os.environ.get(LAZY)
    os.environ[LAZY] = "1" if lazy else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[LAZY]
        else:
            os.environ[LAZY] = before


def run_here(folder: Path, workload: str, drawn: Path | None = None, **parameters: Any) -> Journal:
    """One rank, in this process, without Ray. Raises what ended it early."""
    from cluster.worker.measure.recorder import Recorder
    from cluster.worker.rank_group import Ranks
    from cluster.worker.trial_session import TrialSession

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "journal.jsonl"
    trial = make_trial(workload, drawn, **parameters)
    with mode(lazy_mode(trial.parameters)), Recorder(JournalWriter(path, 1)) as recorder:
        TrialSession(trial, Ranks(), recorder, folder).run()
    return read_journal(path)


def losses(journal: Journal) -> list[float]:
    return [step["loss"] for step in journal.steps]


def start(folder: Path, workload: str, drawn: Path | None = None, environment: dict[str, str] | None = None, **parameters: Any) -> Any:
    """The trial's entrypoint as a process; `finish` waits for it."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = make_trial(workload, drawn, key=f"{folder.name:0>16}"[:16].replace("_", "0"), **parameters)
    atomic_write(folder / "trial.json", trial.model_dump_json())
    command = [sys.executable, "-m", "cluster.worker.main", "--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", "1"]
    whole = {**os.environ, "SWEEPBENCH_EXTRA": str(EXTRA), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(environment or {})}
    whole.pop(LAZY, None)  # the worker sets it itself
    with open(folder / "log.txt", "wb") as log:
        return subprocess.Popen(command, env=whole, stdout=log, stderr=log)


def finish(folder: Path, process: Any) -> TrialResult:
    code = process.wait(timeout=240)
    assert code == 0, (folder / "log.txt").read_text()[-3000:]
    return parse_model((folder / "result.json").read_bytes(), TrialResult, folder, "")
