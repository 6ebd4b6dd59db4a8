"""What a trial writes down: each record with its fields, and a journal that cannot be written is said once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cluster.devices.clock import StepTiming
from cluster.journal.journal import JournalWriter
from cluster.worker.measure import recorder as module
from cluster.worker.measure.recorder import NullSink, Recorder
from cluster.worker.measure.records import ImpossibleData
from cluster.worker.outcome import Diverged, Termination
from experiments.trial import Outcome

TIMING = StepTiming(
    step=7, samples=16, loss=2.5, ended_at=1e9, data_wait_s=0.01, h2d_s=0.002, forward_backward_s=0.08, optimizer_s=0.008, total_s=0.1
)


class Kept:
    """A sink in memory."""

    def __init__(self, error: OSError | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.closed, self.error = 0, error

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        self.records.append({"kind": kind, "t": t, **fields})

    def close(self) -> None:
        self.closed += 1
        if self.error:
            raise self.error


def test_every_record_has_its_kind_and_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: 99.0))
    sink = Kept()
    recorder = Recorder(sink)
    recorder.phase("measure")
    recorder.environment({"host": "h", "threads": None})
    recorder.note("said")
    recorder.window({"wall_s": 2.0})
    recorder.evaluation("before", {"loss": np.float32(1.5), "recall": torch.tensor(math.nan), "rank": -math.inf})
    recorder.end(Termination(Outcome.CRASHED, "why", "a traceback"))
    assert sink.records == [
        {"kind": "phase", "t": None, "name": "measure"},
        {"kind": "environment", "t": None, "host": "h", "threads": None},
        {"kind": "note", "t": None, "text": "said"},
        {"kind": "window", "t": None, "wall_s": 2.0},
        {"kind": "evaluation", "t": None, "when": "before", "metrics": {"loss": 1.5, "recall": None, "rank": None}},
        {"kind": "end", "t": 99.0, "outcome": "crashed", "reason": "why"},
    ]


def test_a_step_is_recorded_at_the_time_it_ended_with_the_samples_of_all_ranks() -> None:
    sink = Kept()
    Recorder(sink, world_size=4).step(TIMING, measured=True, more={"rms.a": 1.25, "rms.b": None})
    Recorder(sink).step(TIMING, measured=False)
    first, second = sink.records
    assert (first["kind"], first["t"], first["step"], first["samples"], first["measured"]) == ("step", 1e9, 7, 64, True)
    assert (first["rms.a"], first["rms.b"]) == (1.25, None)
    assert (second["samples"], second["measured"]) == (16, False) and "rms.a" not in second


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_recorded_before_it_ends_the_trial(loss: float) -> None:
    sink = Kept()
    with pytest.raises(Diverged, match="step 7"):
        Recorder(sink).step(replace(TIMING, loss=loss), measured=True)
    assert [record["step"] for record in sink.records] == [7]


def test_a_step_that_cannot_be_is_not_recorded() -> None:
    sink = Kept()
    with pytest.raises(ImpossibleData):
        Recorder(sink).step(replace(TIMING, h2d_s=-1.0), measured=True)
    assert sink.records == []


def test_the_sink_is_closed_and_its_error_does_not_hide_what_ended_the_trial() -> None:
    sink = Kept()
    with Recorder(sink):
        assert sink.closed == 0
    assert sink.closed == 1
    full = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"), Recorder(Kept(full)):
        pass
    with pytest.raises(KeyError, match="the trial's own"), Recorder(Kept(full)):
        raise KeyError("the trial's own")


def test_other_ranks_write_nowhere() -> None:
    with Recorder(NullSink(), world_size=2) as recorder:
        recorder.phase("start")
        with pytest.raises(Diverged):  # and notice all the same
            recorder.step(replace(TIMING, loss=math.nan), measured=True)


def test_what_is_flushed_is_in_the_journal_before_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    sent: list[str] = []
    with JournalWriter(path, 1, interval=3600.0) as journal:
        recorder = Recorder(journal, 1, lambda: sent.append(path.read_text()))
        recorder.note("measured")
        recorder.flush()
    assert len(sent) == 1 and '"text":"measured"' in sent[0]
