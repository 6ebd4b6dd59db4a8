"""Trials of a sweep that went on on another host, or later, from made-up numbers. Nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tasks.analysis.trial_row import TrialRow
from tests.tasks.cell_support import row, workers

HOST = 0.03  # by how much host b is faster than a
NOISE = (0.0006, -0.0011, 0.0004, 0.0009, -0.0008, 0.0003)  # of trials, drawn once
DAY_S = 86_400.0


def at(one: TrialRow, started_at: float, seconds: float = 10.0) -> TrialRow:
    """The row with other times."""
    assert one.result is not None
    return replace(one, result=one.result.model_copy(update={"started_at": started_at, "finished_at": started_at + seconds}))


def spread_over_hosts(words: Sequence[str], rates: Sequence[float] = (), **more: Any) -> list[TrialRow]:
    """Cells with 0, 1, ... loader processes, equal unless `rates` says otherwise, one for each word: its letters are the hosts of its
    repeats, `-` a missing one. Trials of host b began a day later."""
    found = []
    for cell, word in enumerate(words):
        for repeat, host in enumerate(word):
            if host == "-":
                continue
            log = (HOST if host == "b" else 0.0) + NOISE[(2 * repeat + 5 * cell) % len(NOISE)]
            value = (rates[cell] if rates else 100.0) * math.exp(log)
            one = row(workers(cell), value, repeat=repeat + 1, environment={"host_id": f"id-{host}"}, **more)
            found.append(at(one, (DAY_S if host == "b" else 0.0) + 20.0 * (repeat * len(words) + cell)))
    return found
