"""batch_size max: the largest batch that fits the device, found by a line through memory used, tried by real steps in probe processes.

The search is a function of what was learnt so far (`next_size`). A probe process goes on with it, all of its ranks alike, for as long as
sizes fit or nearly do; a size that runs out of memory ends the process, and the next one is told all answers before it starts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cluster import trial_layout
from cluster.journal.journal import JournalError, JournalWriter, read_journal
from cluster.trial_layout import JOURNAL, PROBES, RESULT, TRIAL
from cluster.worker.outcome import TrialEnded
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, Trial, TrialResult

LIMIT = 65_536  # samples per device; beyond it the search stops
RESOLUTION = 0.02  # the search ends when the gap is under this share of the size
SECOND = 8  # the second size that is tried, where the device tells how much memory it used
LEAP = 64  # times the largest size that fits: how far a prediction may go at once
MISSES = 3
PROBE_STEPS, PROBE_WARMUP = 2, 2
PROBE_HEADROOM = 0.03  # share of device memory a batch must leave unreserved to count as fitting
PROBE_TIMEOUT_S = 900  # without an answer
PROBE_POLL_S = 0.5


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


class _Wanted(Exception):
    """The search needs this size's answer."""

    def __init__(self, size: int) -> None:
        self.size = size


def next_size(known: Mapping[int, Probed]) -> int | None:
    """The size to try next, of what is known; None where the search is over."""

    def look(size: int) -> Probed:
        if size not in known:
            raise _Wanted(size)
        return known[size]

    try:
        search(look, room=1 - PROBE_HEADROOM)
    except _Wanted as wanted:
        return wanted.size
    return None


def answer(used: float | None) -> Probed:
    """What it means that a size ran and took `used` of the device's memory."""
    if used is None or used <= 1 - PROBE_HEADROOM:
        return Probed(True, used)
    return Probed(False, used, f"it ran, but only {1 - used:.1%} of the device's memory stayed free, less than {PROBE_HEADROOM:.0%}")


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
    from cluster.worker import trial_files

    if trial.device == "cpu" and not trial.emulated:
        raise TrialEnded(Outcome.UNSUPPORTED, "batch_size max: a CPU has no memory of its own that could be the limit")
    known: dict[int, Probed] = {}
    with JournalWriter(options.out / JOURNAL, options.attempt) as journal, trial_files.mirror(options.out / JOURNAL, options, part=0):
        journal.append("phase", name="max_batch")

        def tell(size: int, found: Probed) -> None:
            known[size] = found
            used = "" if found.used is None else f" with {found.used:.1%} of the device's memory"
            journal.append("note", text=f"batch size {size} {f'fits{used}' if found.fits else f'does not fit: {found.reason}'}")

        processes = 0
        while (size := next_size(known)) is not None:
            processes += 1
            probe(trial, size, known, options, tell)
        good, bad = search(lambda size: known[size], room=1 - PROBE_HEADROOM)
    if good == 0:
        raise TrialEnded(Outcome.DOES_NOT_FIT, f"batch_size max: not even one sample fits: {known[1].reason}")
    edge = "no larger one was tried" if bad is None else f"{bad} does not"
    tried = ", ".join(f"{size} {'fits' if found.fits else 'does not'}" for size, found in known.items())
    return Found(
        good,
        f"batch_size max: {good} samples fit, {edge}; a size counts as fitting if {PROBE_STEPS + PROBE_WARMUP} steps "
        f"leave {PROBE_HEADROOM:.0%} of the device's memory free ({tried}; {processes} processes)",
    )


def probe(trial: Trial, size: int, known: Mapping[int, Probed], options: argparse.Namespace, tell: Callable[[int, Probed], None]) -> None:
    """Learn about `size`, and about more sizes while none runs out of memory, in a process of its own; `tell` hears each answer.

    Raises TrialEnded for any other ending than an answer.
    """
    folder: Path = options.out / PROBES / trial_layout.probe(size, options.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    small = with_batch_size(trial, size, steps=PROBE_STEPS, warmup_steps=PROBE_WARMUP, evaluate=False, profile_steps=0)
    atomic_write(folder / TRIAL, small.model_dump_json())
    command = [sys.executable, "-m", "cluster.worker.main", "--trial", str(folder / TRIAL), "--out", str(folder)]
    command += ["--attempt", str(options.attempt), "--probe", encode(known)]
    command += ["--placement", options.placement] if options.placement else []
    heard = dict(known)

    def listen() -> None:
        for more, found in answers(folder).items():
            if more not in heard:
                heard[more] = found
                tell(more, found)

    with subprocess.Popen(command) as child:
        try:
            code = _wait(child, heard, listen)
        except BaseException:  # a hang, or this trial was cancelled: leave nothing behind
            child.terminate()
            raise
    listen()
    path = folder / RESULT
    if not path.exists():
        raise TrialEnded(Outcome.INFRA, f"worker_lost: the probe of batch size {size} ended with status {code} and no result")
    result = TrialResult.model_validate_json(path.read_text())
    last = next_size(heard)
    if result.outcome is Outcome.DOES_NOT_FIT and last is not None:
        tell(last, Probed(False, None, result.reason))
    elif result.outcome is not Outcome.OK:
        raise TrialEnded(str(result.outcome), f"the probe of batch size {last or size}: {result.reason}")
    elif size not in heard:  # it could not tell what it took
        tell(size, answer(None))


def _wait(child: subprocess.Popen[bytes], heard: Mapping[int, Probed], listen: Callable[[], None]) -> int:
    """The child's exit status. Raises TimeoutExpired where it has not answered for too long."""
    count, deadline = len(heard), time.monotonic() + PROBE_TIMEOUT_S
    while True:
        try:
            return child.wait(PROBE_POLL_S)
        except subprocess.TimeoutExpired:
            listen()
            if len(heard) > count:
                count, deadline = len(heard), time.monotonic() + PROBE_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise


def answers(folder: Path) -> dict[int, Probed]:
    """What a probe's journal says of sizes that ran; empty while there is none."""
    try:
        window = read_journal(folder / JOURNAL).window or {}
    except (OSError, JournalError):
        return {}
    return decode(json.dumps(window.get("probes") or {}))


def encode(known: Mapping[int, Probed]) -> str:
    """Answers as a probe process is told them, and as it tells them: size -> whether it fits, share of memory used or null."""
    return json.dumps({str(size): [found.fits, found.used] for size, found in known.items()})


def decode(text: str) -> dict[int, Probed]:
    """See `encode`."""
    told: dict[str, tuple[bool, float | None]] = json.loads(text)
    return {int(size): answer(used) if fits or used is not None else Probed(False) for size, (fits, used) in told.items()}


def with_batch_size(trial: Trial, size: int, **others: int | bool) -> Trial:
    """The trial with a number in place of max. Its key stays: it is the same trial."""
    return trial.model_copy(update={"parameters": {**trial.parameters, "batch_size": size, **others}})
