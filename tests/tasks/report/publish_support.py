"""Made-up sweeps as `sweep publish` finds them, and edits of their files by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.sweep.store import SweepStore
from tests.tasks.fake_sweep import SWEEP_ID, Fake, whole_sweep

OTHER_ID = "made-up-20260102-000000-ffff"


def fakes() -> list[Fake]:
    axes = {"pool": "cpu", "model": "base"}
    broken = {"outcome": Outcome.CRASHED, "reason": "worker on box: lost", "rate": 1.0}
    return [
        Fake({**axes, "dataloader_workers": 0}, 100.0, repeats=2, rms=lambda step: 1.0),
        Fake({**axes, "dataloader_workers": 1}, 150.0, repeats=2),
        Fake({**axes, "dataloader_workers": 2}, **broken),
    ]


def whole(sweep_id: str = SWEEP_ID, made: list[Fake] | None = None) -> SweepStore:
    return whole_sweep(runs_root(), made or fakes(), sweep_id=sweep_id)


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
