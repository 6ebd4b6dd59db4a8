"""batch_size max: the largest batch that fits the device, found by a line through memory used, each size tried in a fresh process."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cluster.journal import JournalError, JournalWriter, publish, read_journal
from cluster.worker.outcome import TrialEnded
from experiments.trial import Outcome, Trial, TrialResult

LIMIT = 65_536  # samples per device; beyond it the search stops
RESOLUTION = 0.02  # the search ends when the gap is under this share of the size
SECOND = 8  # the second size that is tried, where the device tells how much memory it used
LEAP = 64  # times the largest size that fits: how far a prediction may go at once
MISSES = 3
PROBE_STEPS, PROBE_WARMUP = 2, 2
PROBE_TIMEOUT_S = 900


@dataclass(frozen=True)
class Found:
    """The search's answer, and the sentence about it that the journal keeps."""

    size: int
    note: str


class Probed(NamedTuple):
    """What one probe found. `used`: share of the device's memory that it took at its peak, 0 to 1; None where that is not known."""

    fits: bool
    used: float | None = None
    reason: str | None = None


def search(probe: Callable[[int], Probed], limit: int = LIMIT, room: float = 1.0) -> tuple[int, int | None]:
    """(largest size found to fit, smallest found not to). 0: not even one sample fits. None: nothing up to `limit` was too large.

    What a step needs grows linearly with the batch, so two sizes tell where `room`, the share of memory that may be used, ends: sizes 1
    and SECOND are tried, then what a line through them predicts, then the neighbours of that with a line through what was learnt. It ends
    when the gap is 1, or under RESOLUTION of the size; only sizes that were tried count. Where a device does not tell how much memory it
    used the size doubles instead, and a prediction that misses MISSES times is given up: what is left is bisected.
    """
    good, bad, size, misses = 0, None, 1, 0
    points: list[tuple[int, float]] = []
    while True:
        found = probe(size)
        if found.used is not None:
            points.append((size, found.used))
        if found.fits:
            good = size
        else:
            bad = size
        gap = max(1, int(good * RESOLUTION))
        if good >= limit or (bad is not None and bad - good <= gap):
            return good, bad
        guess = predict(points, room)
        if bad is None:
            ahead = good * (SECOND if len(points) == 1 else 2) if guess is None else max(good + gap, int(guess))
            size = min(ahead, good * LEAP, limit)
        elif guess is None or misses >= MISSES:
            size = (good + bad) // 2
        else:
            below = max(1, int(bad * RESOLUTION / (1 + RESOLUTION)))  # a size that fits so far below ends the search
            times = 1 if found.fits or found.used is not None else 4**misses  # it ran out of memory, so the line learnt nothing
            size = max(good + gap, min(int(guess), bad - below * times))
            misses += 1


def predict(points: Sequence[tuple[int, float]], room: float) -> float | None:
    """The size at which `room` is used, on the line through the largest size and the next that is at most half of it, or the smallest.

    Two sizes side by side would tell the allocator's rounding from each other, not the slope. None with fewer than two, or no slope.
    """
    if len(points) < 2:
        return None
    ordered = sorted(points)
    size, used = ordered[-1]
    other, least = max((point for point in ordered if point[0] <= size / 2), default=ordered[0])
    slope = (used - least) / (size - other)
    return size + (room - used) / slope if slope > 0 else None


def find(trial: Trial, options: argparse.Namespace) -> Found:
    """Search with real probes, noting each in the journal. Raises TrialEnded on a CPU, and where a probe fails in another way."""
    from cluster.worker import shared
    from cluster.worker.session import JOURNAL, PROBE_HEADROOM

    if trial.device == "cpu" and not trial.emulated:
        raise TrialEnded(Outcome.UNSUPPORTED, "batch_size max: a CPU has no memory of its own that could be the limit")
    tried: list[str] = []
    with JournalWriter(options.out / JOURNAL, options.attempt) as journal, shared.mirror(options.out / JOURNAL, options, part=0):
        journal.append("phase", name="max_batch")

        def tell(size: int) -> Probed:
            found = probe(trial, size, options)
            used = "" if found.used is None else f" with {found.used:.1%} of the device's memory"
            tried.append(f"{size} {'fits' if found.fits else 'does not'}")
            journal.append("note", text=f"batch size {size} {f'fits{used}' if found.fits else f'does not fit: {found.reason}'}")
            return found

        good, bad = search(tell, room=1 - PROBE_HEADROOM)
    if good == 0:
        raise TrialEnded(Outcome.DOES_NOT_FIT, "batch_size max: not even one sample fits")
    edge = "no larger one was tried" if bad is None else f"{bad} does not"
    return Found(
        good,
        f"batch_size max: {good} samples fit, {edge}; a size counts as fitting if {PROBE_STEPS + PROBE_WARMUP} steps "
        f"in a fresh process leave {PROBE_HEADROOM:.0%} of the device's memory free ({', '.join(tried)})",
    )


def probe(trial: Trial, size: int, options: argparse.Namespace) -> Probed:
    """Whether `size` fits, from a few steps in a process of its own. Raises TrialEnded for any other ending than yes and no."""
    folder: Path = options.out / "probes" / f"batch-{size}-a{options.attempt}"
    folder.mkdir(parents=True, exist_ok=True)
    small = with_batch_size(trial, size, steps=PROBE_STEPS, warmup_steps=PROBE_WARMUP, evaluate=False, profile_steps=0)
    publish(folder / "trial.json", small.model_dump_json(indent=1))
    command = [sys.executable, "-m", "cluster.worker.main", "--trial", str(folder / "trial.json"), "--out", str(folder)]
    command += ["--attempt", str(options.attempt), "--probe", *(["--placement", options.placement] if options.placement else [])]
    with subprocess.Popen(command) as child:
        try:
            code = child.wait(PROBE_TIMEOUT_S)
        except BaseException:  # a hang, or this trial was cancelled: leave nothing behind
            child.terminate()
            raise
    path = folder / "result.json"
    if not path.exists():
        raise TrialEnded(Outcome.INFRA, f"worker_lost: the probe of batch size {size} ended with status {code} and no result")
    result = TrialResult.model_validate_json(path.read_text())
    if result.outcome in (Outcome.OK, Outcome.DOES_NOT_FIT):
        return Probed(result.outcome is Outcome.OK, memory_share(folder), result.reason)
    raise TrialEnded(str(result.outcome), f"the probe of batch size {size}: {result.reason}")


def memory_share(folder: Path) -> float | None:
    """What a probe's journal says it took of the device's memory."""
    try:
        window = read_journal(folder / "journal.jsonl").window or {}
    except (OSError, JournalError):
        return None
    share = window.get("memory_share")
    return share if isinstance(share, float) else None


def with_batch_size(trial: Trial, size: int, **others: int | bool) -> Trial:
    """The trial with a number in place of max. Its key stays: it is the same trial."""
    return trial.model_copy(update={"parameters": {**trial.parameters, "batch_size": size, **others}})
