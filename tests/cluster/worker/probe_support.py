"""The search for the largest batch with probes that run in the test's process, on a pretended device."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.journal.journal import JournalWriter, read_journal
from cluster.worker import main, max_batch
from cluster.worker.max_batch import SearchResult
from cluster.worker.measure.recorder import Recorder
from cluster.worker.outcome import Termination, classify
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.trial import Outcome, Trial
from tests.contracts import make_trial


class Pretended(Cpu):
    """A device of which a sample takes a hundredth, and the model a tenth."""

    releases_memory = True
    opened = 0

    def __init__(self) -> None:
        super().__init__()
        self.peak, self.released = 0.0, 0
        type(self).opened += 1

    def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
        used = 0.1 + 0.01 * len(batch["vectors"])
        if used > 1:
            raise torch.OutOfMemoryError("CUDA out of memory (pretended)")
        self.peak = max(self.peak, used)
        return super().place(batch, prepare, prefetch=prefetch)

    def free_share_at_peak(self) -> float | None:
        return 1 - self.peak

    def release_memory(self) -> None:
        self.peak, self.released = 0.0, self.released + 1


class LeavesPieces(Pretended):
    """The allocator keeps 0.15 of the memory for the sizes before."""

    def free_share_at_peak(self) -> float | None:
        return 1 - self.peak - (0.15 if self.released else 0.0)


class Here:
    """In place of subprocess.Popen: the probe runs in this process, its Ray and its ranks left out."""

    commands: ClassVar[list[list[str]]] = []

    def __init__(self, command: list[str]) -> None:
        self.commands.append(command)
        options = main._parse(command[3:])
        trial, ending = Trial.model_validate_json(options.trial.read_text()), Termination(Outcome.OK)
        with Recorder(JournalWriter(options.out / "journal.jsonl", options.attempt)) as recorder:
            try:
                TrialSession(trial, Ranks(), recorder, options.out, probe=options.probe).run()
            except Exception as error:
                ending = classify(error)
        main.write_result(trial, options.out, options.attempt, 0.0, ending)

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self, timeout: float) -> int:
        return 0


def found_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: type[Pretended], code: str | None = "c0de", **parameters: Any
) -> tuple[SearchResult, list[str]]:
    Pretended.opened, Here.commands = 0, []
    device.opened = 0
    monkeypatch.setattr("cluster.worker.set_up.load_device", lambda kind, rank: device())
    monkeypatch.setattr(max_batch, "subprocess", SimpleNamespace(Popen=Here, TimeoutExpired=TimeoutError))
    monkeypatch.setattr(Cpu, "compile_backend", "eager")
    folder.mkdir(exist_ok=True)
    one = make_trial(
        folder, "aaaa00000000000e", batch_size="max", width=16, steps=4, measure_s=3600, warmup_s=3600, **parameters
    )  # for probes neither
    options = main._parse(["--trial", "unused", "--out", str(folder), "--attempt", "1"])
    found = max_batch.find(one.model_copy(update={"device": "cuda", "key_parts": {"code": code} if code else {}}), options)
    return found, [str(note["text"]) for note in read_journal(folder / "journal.jsonl").notes]
