"""Holds and journals at chosen times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.sweep.slot_log import Hold


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
