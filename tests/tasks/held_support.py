"""Holds and journals at chosen times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.journal.lines import encode
from experiments.trial import Trial
from tasks.sweep.slot_log import Hold
from tasks.sweep.store import SweepStore


def hold(taken: float, given_back: float | None, trial: str = "a", **more: Any) -> Hold:
    """A hold of slot s of pool cpu by flow f, asked for when it was taken, whose first attempt starts at once."""
    fields: dict[str, Any] = {"flow": "f", "pool": "cpu", "slots": ("s",), "asked": taken, "starts": [(taken, 1)], **more}
    return Hold(trial=trial, taken=taken, given_back=given_back, **fields)


def journal(at: float, phases: Mapping[str, float] | None = None, *, wall_s: float = 4.0) -> list[Any]:
    """Records of an attempt that began at `at`: 1 s each of imports, set-up, data, build, first step and warm-up, then a window of `wall_s`
    that begins 0.5 s after its phase, 1 s of evaluation, and the end. `phases`: others, by offset."""
    offsets = {"imports": 0, "start": 1, "data": 2, "build": 3, "first_step": 4, "warmup": 5, "measure": 6} if phases is None else phases
    end = at + 6.5 + wall_s
    records = [{"kind": "attempt", "t": at + 0.5, "attempt": 1}]
    records += [{"kind": "phase", "t": at + offset, "name": name} for name, offset in offsets.items()]
    records += [{"kind": "step", "t": at + 5.5, "measured": False, "step": 1}, {"kind": "step", "t": end, "measured": True, "step": 2}]
    records += [{"kind": "phase", "t": end + 0.25, "name": "evaluate"}, {"kind": "evaluation", "t": end + 1.0, "when": "after"}]
    records += [{"kind": "window", "t": end + 1.5, "wall_s": wall_s}, {"kind": "phase", "t": end + 1.5, "name": "done"}]
    return [*records, {"kind": "end", "t": end + 1.5, "outcome": "ok"}]


def write_journal(path: Path, records: list[Any]) -> None:
    """A journal of these records."""
    lines, crc = [], 0
    for record in records:
        line, crc = encode(record, crc)
        lines.append(line)
    path.write_bytes(b"".join(lines))


def write_held(store: SweepStore, trial: Trial, *, pool: str = "cpu") -> None:
    """The trial held a slot of its own from 10 s to 20 s and measured for 4 s; steps have what a summary needs."""
    phases = {"imports": 4.0, "start": 5.0, "warmup": 5.0, "measure": 6.0}
    step = {"loss": 1.0, "samples": 8, "data_wait_s": 0.0, "h2d_s": 0.0, "forward_backward_s": 1.0, "optimizer_s": 0.0, "total_s": 1.0}
    records = [{**record, **step} if record["kind"] == "step" else record for record in journal(7.0, phases)]
    records = [{**record, "samples": 8, "ranks": []} if record["kind"] == "window" else record for record in records]
    write_journal(store.trial_dir(trial.key) / "journal.jsonl", records)
    write_slots(store, trial.key, pool=pool)


def write_slots(store: SweepStore, key: str, *, pool: str = "cpu") -> None:
    """The trial held a slot of its own from 10 s to 20 s."""
    events = [
        {"t": 10.0, "event": "taken", "pool": pool, "slots": [key], "asked": 9.0},
        {"t": 10.0, "event": "started", "attempt": 1},
        {"t": 20.0, "event": "given_back"},
    ]
    lines = [json.dumps({**event, "flow": "f", "trial": key}) + "\n" for event in events]
    with open(store.dir / "slots.jsonl", "a") as file:
        file.writelines(lines)
