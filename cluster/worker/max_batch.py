"""batch_size max: the largest batch that fits the device, by doubling, then bisection, each size tried in a fresh process."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.journal import JournalWriter, publish
from cluster.worker.outcome import TrialEnded
from experiments.trial import Outcome, Trial, TrialResult

LIMIT = 65_536  # samples per device; beyond it the search stops
RESOLUTION = 0.02  # bisection ends when the gap is under this share of the size
PROBE_STEPS, PROBE_WARMUP = 2, 2
PROBE_TIMEOUT_S = 900


@dataclass(frozen=True)
class Found:
    """The search's answer, and the sentence about it that the journal keeps."""

    size: int
    note: str


def search(fits: Callable[[int], bool], limit: int = LIMIT) -> tuple[int, int | None]:
    """(largest size found to fit, smallest found not to). 0: not even one sample fits. None: nothing up to `limit` was too large.

    Doubles from 1 until a size does not fit, then bisects until the gap is 1, or under RESOLUTION of the size.
    """
    good, bad, size = 0, None, 1
    while bad is None and size <= limit:
        if fits(size):
            good, size = size, size * 2
        else:
            bad = size
    if bad is None:
        return good, None
    while bad - good > max(1, int(good * RESOLUTION)):
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good, bad


def find(trial: Trial, options: argparse.Namespace) -> Found:
    """Search with real probes, noting each in the journal. Raises TrialEnded on a CPU, and where a probe fails in another way."""
    from cluster.worker import shared
    from cluster.worker.session import JOURNAL, PROBE_HEADROOM

    if trial.device == "cpu" and not trial.emulated:
        raise TrialEnded(Outcome.UNSUPPORTED, "batch_size max: a CPU has no memory of its own that could be the limit")
    tried: list[str] = []
    with JournalWriter(options.out / JOURNAL, options.attempt) as journal, shared.mirror(options.out / JOURNAL, options, part=0):
        journal.append("phase", name="max_batch")

        def fits(size: int) -> bool:
            ok, reason = probe(trial, size, options)
            tried.append(f"{size} {'fits' if ok else 'does not'}")
            journal.append("note", text=f"batch size {size} {'fits' if ok else f'does not fit: {reason}'}")
            return ok

        good, bad = search(fits)
    if good == 0:
        raise TrialEnded(Outcome.DOES_NOT_FIT, "batch_size max: not even one sample fits")
    edge = "no larger one was tried" if bad is None else f"{bad} does not"
    return Found(
        good,
        f"batch_size max: {good} samples fit, {edge}; a size counts as fitting if {PROBE_STEPS + PROBE_WARMUP} steps "
        f"in a fresh process leave {PROBE_HEADROOM:.0%} of the device's memory free ({', '.join(tried)})",
    )


def probe(trial: Trial, size: int, options: argparse.Namespace) -> tuple[bool, str | None]:
    """(whether `size` fits, why not), from a few steps in a process of its own. Raises TrialEnded for any other ending."""
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
        return result.outcome is Outcome.OK, result.reason
    raise TrialEnded(str(result.outcome), f"the probe of batch size {size}: {result.reason}")


def with_batch_size(trial: Trial, size: int, **others: int | bool) -> Trial:
    """The trial with a number in place of max. Its key stays: it is the same trial."""
    return trial.model_copy(update={"parameters": {**trial.parameters, "batch_size": size, **others}})
